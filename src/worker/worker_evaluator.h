// The parent's side: an Evaluator that survives whatever a candidate does to its worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/evaluator.h"
#include "base/subprocess.h"
#include "measure/floor.h"
#include "worker/protocol.h"

namespace moetune {

struct WorkerOptions {
  std::vector<std::string> argv;        ///< of the worker; argv[0] is a path
  StopRule stop;                        ///< of evaluate
  StopRule race_stop;                   ///< of race
  double open_s = 0;                    ///< deadline for loading the weights; 0: from the size of the layer
  double evaluate_s = 0;                ///< deadline for one candidate; 0: from the size of the layer and the workload
  std::int64_t memory_limit_bytes = 0;  ///< address space of the worker; 0: no limit
  const std::atomic<bool>* stop_flag =
      nullptr;  ///< set: the candidate at hand is given up as skipped, within a fraction of a second
};

/// Runs candidates in one worker at a time. The worker is replaced after it died, was killed on its deadline or said
/// something that is not the protocol. A worker that cannot even open its job three times in a row is not tried again:
/// every further outcome says so.
class WorkerEvaluator : public Evaluator {
 public:
  WorkerEvaluator(Job job, WorkerOptions options);

  [[nodiscard]] Outcome evaluate(const Workload& workload, const Candidate& candidate) override;
  [[nodiscard]] std::vector<Outcome> race(const Workload& workload, std::span<const Candidate> candidates) override;
  /// Measured in the worker, so that the device is in the state that candidates meet.
  [[nodiscard]] Result<Ceilings> ceilings();
  /// Starts the worker and loads the weights now rather than with the first candidate, so that what is wrong with them
  /// is said at once.
  [[nodiscard]] Status open();
  /// How many workers were started.
  [[nodiscard]] int starts() const { return starts_; }

 private:
  /// Why no answer came.
  struct Loss {
    OutcomeStatus status = OutcomeStatus::crashed;
    std::string diagnosis;
    std::string log;
  };
  using Answer = tl::expected<Json, Loss>;

  [[nodiscard]] std::optional<Loss> ensure_open();
  [[nodiscard]] Answer ask(std::string_view op, const Json& body, double seconds);
  [[nodiscard]] Answer read_answer(std::int64_t id, double seconds);
  [[nodiscard]] Loss lose(OutcomeStatus status, const std::string& what);
  [[nodiscard]] Loss died();
  [[nodiscard]] double deadline(const Workload& workload, std::size_t candidates) const;

  Job job_;
  WorkerOptions options_;
  std::optional<Subprocess> worker_;
  std::string phase_;
  std::int64_t next_id_ = 1;
  int starts_ = 0;
  int failed_opens_ = 0;
  std::optional<Error> refused_;  ///< the worker's own words why the job cannot be opened
};

}  // namespace moetune
