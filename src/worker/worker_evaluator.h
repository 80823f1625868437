// The parent's side: an Evaluator that survives whatever a candidate does to its worker.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/evaluator.h"
#include "base/error.h"
#include "measure/floor.h"
#include "measure/stop_rule.h"
#include "worker/protocol.h"
#include "worker/worker_process.h"

namespace moetune {

struct WorkerOptions {
  std::vector<std::string> argv;        ///< of the worker; argv[0] is a path
  StopRule stop;                        ///< of evaluate
  StopRule race_stop;                   ///< of race
  double open_s = 0;                    ///< deadline for loading the weights; 0: from the size of the layer
  double evaluate_s = 0;                ///< deadline for one candidate, without the worker's own work; 0: from the size
                                        ///< of the layer and the workload
  std::int64_t memory_limit_bytes = 0;  ///< address space of the worker; 0: no limit
  const std::atomic<bool>* stop_flag =
      nullptr;  ///< set: the candidate at hand is given up as skipped, within a fraction of a second
};

/// Runs candidates in one worker at a time, which is replaced after it died, was killed on its deadline, said something
/// that is not the protocol, or ran a candidate that may have left something behind (spoils()). What is not a
/// candidate's fault is not called its failure: such outcomes are skipped, with a diagnosis. A worker that cannot open
/// its job three times in a row is not tried again.
///
/// Not thread-safe. The worker dies with the thread that called this (base/subprocess.h).
class WorkerEvaluator : public Evaluator {
 public:
  WorkerEvaluator(Job job, WorkerOptions options);

  [[nodiscard]] Outcome evaluate(const Workload& workload, const Candidate& candidate) override;
  /// A candidate that takes the worker down is out of the race, which the others run anew.
  [[nodiscard]] std::vector<Outcome> race(const Workload& workload, std::span<const Candidate> candidates) override;
  /// Measured in the worker, so that the device is in the state that candidates meet.
  [[nodiscard]] Result<Ceilings> ceilings();
  /// Starts the worker and loads the weights now rather than with the first candidate, so that what is wrong with them
  /// is said at once.
  [[nodiscard]] Status open();
  /// Why no worker is started any more; nothing while they are.
  [[nodiscard]] const std::optional<Error>& given_up() const { return given_up_; }
  /// How many workers were started.
  [[nodiscard]] int starts() const { return starts_; }

 private:
  struct Given {
    Reply reply;
    std::string log;  ///< printed by the worker for this request
  };
  using Answer = tl::expected<Given, Loss>;

  [[nodiscard]] bool stopped() const { return options_.stop_flag != nullptr && options_.stop_flag->load(); }
  [[nodiscard]] Status try_open();
  [[nodiscard]] Status open_job(WorkerProcess& worker);
  /// Asks about candidates, in a new worker where this one turns out to be gone or was brought down by what ran before.
  [[nodiscard]] Answer ask(Op op, const EvaluateRequest& request);
  [[nodiscard]] Answer ask_once(Op op, const EvaluateRequest& request);
  [[nodiscard]] PhaseClock clock_for(Op op, const EvaluateRequest& request) const;
  [[nodiscard]] Outcome read_outcome(const Json& json, const std::string& log);
  /// One race of candidates that have these numbers in `outcomes`. Returns those that have to run anew without the
  /// others; none: it is over.
  [[nodiscard]] std::vector<std::size_t> race_once(const EvaluateRequest& request,
                                                   const std::vector<std::size_t>& racers,
                                                   std::vector<Outcome>& outcomes);

  Job job_;
  WorkerOptions options_;
  std::optional<WorkerProcess> worker_;
  bool used_ = false;  ///< candidates have run in worker_
  int starts_ = 0;
  int failed_opens_ = 0;
  std::optional<Error> given_up_;
  std::optional<std::pair<Workload, Loss>> no_reference_;  ///< what became of a worker that computed this one's
  std::optional<std::pair<Workload, double>> fastest_;     ///< seconds of a call that was right
};

}  // namespace moetune
