// Checks and times candidates in this process.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/outcome.h"
#include "model/layer.h"
#include "worker/protocol.h"
#include "worker/traffic.h"

namespace moetune {

/// One layer with its weights, the sessions opened on it, and the reference's answer for the workload at hand. What a
/// backend does wrong short of ending the process becomes an Outcome; ending it is the parent's business.
class Bench {
 public:
  /// `phase` is called before "configure", "check" and "time".
  Bench(const Registry& registry, Job job, Layer layer, std::function<void(std::string_view)> phase);

  [[nodiscard]] const Job& job() const { return job_; }
  /// The first candidate: right first, then timed, then right still.
  [[nodiscard]] Outcome evaluate(const EvaluateRequest& request);
  /// All candidates, a call of each in turn.
  [[nodiscard]] std::vector<Outcome> race(const EvaluateRequest& request);

 private:
  struct Prepared {
    Traffic traffic;
    std::vector<std::int64_t> rows;  ///< tokens that are compared; empty: all
    std::vector<float> reference;    ///< of the first call
  };

  [[nodiscard]] Result<Prepared*> prepare(const Workload& workload);
  [[nodiscard]] Result<Session*> session(const std::string& backend);
  [[nodiscard]] Outcome evaluate_guarded(const EvaluateRequest& request);
  [[nodiscard]] std::optional<Outcome> wrong(Session& session, Prepared& prepared, std::string_view when,
                                             double& error);
  [[nodiscard]] Result<std::vector<double>> measure(Session& session, Prepared& prepared, const StopRule& stop);

  const Registry& registry_;
  Job job_;
  std::unique_ptr<Layer> layer_;
  std::function<void(std::string_view)> phase_;
  std::list<std::pair<std::string, std::unique_ptr<Session>>> sessions_;  ///< most recently used first
  std::optional<std::pair<Workload, Prepared>> prepared_;
};

}  // namespace moetune
