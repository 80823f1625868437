// Checks and times candidates in this process.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/outcome.h"
#include "base/error.h"
#include "model/layer.h"
#include "worker/checker.h"
#include "worker/protocol.h"
#include "worker/traffic.h"

namespace moetune {

/// One layer with its weights, the sessions opened on it, and the reference's answers to recent workloads. What a
/// backend does wrong short of ending the process becomes an Outcome; ending it is the parent's business. The weights
/// are read-only here: a backend that writes into them ends the process instead of spoiling the next one's answers.
class Bench {
 public:
  /// Told of each phase before it begins, with the number of the candidate in the request.
  using Announce = std::function<void(Phase, std::size_t candidate)>;

  Bench(const Registry& registry, Job job, Layer layer, Announce announce);

  [[nodiscard]] const Job& job() const { return job_; }
  /// The only candidate: right first, then timed, then right still. Errors are not the candidate's: the workload cannot
  /// be made or its reference not be computed.
  [[nodiscard]] Result<Outcome> evaluate(const EvaluateRequest& request);
  /// Every candidate as evaluate does, briefly; then those that are right in turn, a b c a b c …, until each has enough
  /// samples or has failed. Ends early once spoiled(): who has not failed then has too few samples or is skipped.
  [[nodiscard]] Result<std::vector<Outcome>> race(const EvaluateRequest& request);
  /// Whether a candidate misbehaved so that the next one in this process might be blamed for it: see spoils().
  [[nodiscard]] bool spoiled() const { return spoiled_; }

 private:
  struct Prepared {
    Workload workload;
    Traffic traffic;
    Checker checker;

    [[nodiscard]] std::int64_t bytes() const { return traffic.bytes() + checker.bytes(); }
  };
  struct Racer;

  [[nodiscard]] Result<Prepared*> prepare(const Workload& workload);
  [[nodiscard]] Result<Session*> session(const std::string& backend);
  [[nodiscard]] Result<Outcome> evaluate_one(const Workload& workload, const Candidate& candidate, const StopRule& stop,
                                             std::size_t index);
  [[nodiscard]] Outcome run_candidate(Prepared& prepared, const Candidate& candidate, const StopRule& stop,
                                      std::size_t index);
  [[nodiscard]] Outcome check_first_calls(Session& session, Prepared& prepared) const;
  [[nodiscard]] Result<std::vector<Racer>> line_up(const EvaluateRequest& request);
  [[nodiscard]] Outcome take_turn(Racer& racer, Prepared& prepared, std::size_t round);
  /// What `body` returns, or the outcome of what it threw; notes whether that spoils the process.
  [[nodiscard]] Outcome guarded(const std::function<Outcome()>& body);

  const Registry& registry_;
  Job job_;
  std::unique_ptr<Layer> layer_;
  Announce announce_;
  std::list<std::pair<std::string, std::unique_ptr<Session>>> sessions_;  ///< most recently used first
  std::list<Prepared> prepared_;                                          ///< the same
  std::size_t most_sessions_;
  bool spoiled_ = false;
};

}  // namespace moetune
