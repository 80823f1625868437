// What bench and tune share: a layer, a target, a worker on it, the ceilings of this run, the store.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/options.h"
#include "tune/store.h"
#include "worker/worker_evaluator.h"

namespace moetune {

struct RunOptions {
  LayerOptions layer;
  TargetOptions target;
  RoutingOptions routing;
  std::string backends;  ///< comma-separated ids; empty: all
  std::string store;     ///< file; empty: the default one
  double timeout_s = 0;  ///< for one candidate; 0: from the size of the layer
  bool json = false;

  void add_to(CLI::App& command);
};

/// Everything is checked before the worker is started. The worker holds the weights; this process never touches a
/// device.
struct Run {
  LayerChoice choice;
  Target target;
  std::vector<Workload> workloads;
  std::vector<const Backend*> backends;  ///< those asked for, in order of registration
  Identity identity;
  std::optional<Store> store;
  std::unique_ptr<WorkerEvaluator> worker;
  Ceilings ceilings;
};
/// Checks what was asked for and starts nothing.
[[nodiscard]] Result<Run> prepare_run(const RunOptions& options, Context& context);
/// Starts the worker, loads the weights into it and measures the ceilings.
[[nodiscard]] Status start_worker(Run& run);

/// The head of the text output: model, layer, target, weights, what was assumed.
[[nodiscard]] std::string heading(const Run& run);

}  // namespace moetune
