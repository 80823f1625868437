#include "cli/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "report/output.h"
#include "report/table.h"

namespace moetune {
namespace {

/// Bump when timings of an unchanged backend may come out differently: traffic, clock, warm-up.
constexpr int kMeasuringVersion = 1;

Result<std::vector<const Backend*>> choose_backends(const std::string& list, const Registry& registry) {
  std::vector<const Backend*> chosen;
  if (list.empty()) {
    for (const auto& backend : registry.backends()) chosen.push_back(backend.get());
    return chosen;
  }
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string id = list.substr(begin, end - begin);
    const Backend* backend = registry.find(id);
    if (backend == nullptr) backend = registry.find("moetune:" + id);
    if (backend == nullptr) {
      std::string known;
      for (const auto& b : registry.backends()) known += (known.empty() ? "" : ", ") + b->id();
      return fail(fmt::format("--backends: no backend '{}'", for_terminal(id.substr(0, 60))), {"known ones: " + known});
    }
    if (std::find(chosen.begin(), chosen.end(), backend) == chosen.end()) chosen.push_back(backend);
    begin = end + 1;
  }
  return chosen;
}

/// Random weights are named by their seed, a checkpoint by where and when its files were written.
std::string weights_identity(const LayerChoice& choice) {
  if (choice.weights_folder.empty()) return fmt::format("random {}", choice.seed);
  std::vector<std::string> files;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(choice.weights_folder, problem)) {
    if (!entry.is_regular_file(problem)) continue;
    const auto time = entry.last_write_time(problem).time_since_epoch().count();
    files.push_back(fmt::format("{} {} {}", entry.path().filename().string(), entry.file_size(problem), time));
  }
  std::sort(files.begin(), files.end());
  std::string text = fmt::format("layer {} seed {}\n", choice.layer, choice.seed);
  for (const auto& file : files) text += file + "\n";
  return "checkpoint " + content_hash(text);
}

Job job_of(const LayerChoice& choice, const Target& target) {
  Job job;
  job.problem = choice.problem;
  job.target = target;
  job.folder = choice.weights_folder;
  job.geometry = choice.model.geometry;
  job.layer = choice.layer;
  job.tp_rank = choice.cut.tp_rank;
  job.ep_rank = choice.cut.ep_rank;
  job.seed = choice.seed;
  return job;
}

}  // namespace

void RunOptions::add_to(CLI::App& command) {
  layer.add_to(command);
  target.add_device(command);
  routing.add_to(command);
  command.add_option("--backends", backends, "comma-separated backends to look at; default: all that can run");
  command.add_option("--store", store, "file that keeps results; default: " + Store::default_path());
  command.add_option("--timeout", timeout_s, "seconds a candidate may take; default: from the size of the layer");
  command.add_flag("--json", json, "one JSON object instead of a table");
}

Result<Run> prepare_run(const RunOptions& options, Context& context) {
  if (!std::isfinite(options.timeout_s) || options.timeout_s < 0)
    return fail(fmt::format("--timeout: {} is not a number of seconds", options.timeout_s));
  MOETUNE_TRY(const auto tokens, parse_tokens(options.routing.tokens));
  MOETUNE_TRY(const RoutingKind routing, parse_routing(options.routing));
  MOETUNE_TRY(auto backends, choose_backends(options.backends, context.registry));
  Run run;
  MOETUNE_TRY(run.choice, choose_layer(options.layer));
  MOETUNE_TRY(run.target, choose_target(options.target, context.registry));
  MOETUNE_TRY(Store store, Store::open(options.store.empty() ? Store::default_path() : options.store));
  run.store.emplace(std::move(store));
  run.backends = std::move(backends);
  for (const auto count : tokens) run.workloads.push_back({count, routing, options.layer.seed});
  WorkerOptions worker;
  worker.argv = {own_path(), "worker"};
  worker.evaluate_s = options.timeout_s;
  worker.race_stop.max_s = 2;
  worker.race_stop.relative_noise = 0.005;
  worker.stop_flag = &context.stop;
  run.identity = {run.choice.problem, run.target, weights_identity(run.choice),
                  fmt::format("{} {}", kMeasuringVersion, cache_key(worker.stop))};
  run.worker = std::make_unique<WorkerEvaluator>(job_of(run.choice, run.target), worker);
  return run;
}

Status start_worker(Run& run) {
  MOETUNE_CHECK(run.worker->open());
  MOETUNE_TRY(run.ceilings, run.worker->ceilings());
  return {};
}

std::string heading(const Run& run) {
  std::string text =
      fmt::format("{}\n  layer:    {}\n  weights:  {}\n  target:   {}\n", for_terminal(run.choice.model.geometry.model),
                  describe(run.choice.problem), for_terminal(run.choice.weights_origin()), describe(run.target));
  text += fmt::format(
      "  ceilings: cold read {:.1f} GB/s, copy {:.1f} GB/s, arithmetic peak {:.0f} GFLOP/s, measured in this run\n",
      run.ceilings.read_gb_s, run.ceilings.copy_gb_s, run.ceilings.bf16_tflops * 1e3);
  for (const auto& assumption : run.choice.model.geometry.assumed)
    text += "  assumed:  " + for_terminal(assumption) + "\n";
  return text;
}

}  // namespace moetune
