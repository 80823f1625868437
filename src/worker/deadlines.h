// How long a worker may take before it is taken for hung.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "backend/evaluator.h"
#include "measure/stop_rule.h"
#include "model/problem.h"
#include "worker/protocol.h"

namespace moetune {

/// Seconds for each phase.
class PhaseLimits {
 public:
  [[nodiscard]] double of(Phase phase) const { return seconds_[static_cast<std::size_t>(phase)]; }
  void set(Phase phase, double seconds) { seconds_[static_cast<std::size_t>(phase)] = seconds; }

 private:
  std::array<double, EnumNames<Phase>::names.size()> seconds_{};
};

/// Limits of opening a worker and of its ceilings. Like all here for hangs, not for slowness: from the bytes and
/// operations of the problem at rates that the slowest machine in use beats several times over, with half a minute to
/// begin with.
[[nodiscard]] PhaseLimits phase_limits(const Problem& problem);
/// The same for candidates. `known_call_s`: what a call takes that is known to be right; who needs many times as long
/// need not be waited for.
[[nodiscard]] PhaseLimits phase_limits(const Problem& problem, const Workload& workload, const StopRule& stop,
                                       std::optional<double> known_call_s = std::nullopt);

/// Follows one request: told of every phase as it begins, says until when an answer must be there. Times are given, in
/// seconds of any clock.
class PhaseClock {
 public:
  /// Before the first phase the worker has `reply_s`. `candidate_s`: what all phases together may take but those that
  /// are the worker's own (open, reference, ceilings). `total_s`: what nothing extends.
  PhaseClock(double now, const PhaseLimits& limits, double reply_s, std::optional<double> candidate_s, double total_s);

  void enter(Phase phase, double now);
  [[nodiscard]] double deadline() const;
  /// Seconds that the present phase, or the time before the first, was given.
  [[nodiscard]] double allowed() const { return deadline() - entered_; }
  /// The phase announced last; nothing before the first.
  [[nodiscard]] std::optional<Phase> phase() const { return phase_; }

 private:
  PhaseLimits limits_;
  double entered_, limit_;  ///< when the present phase began; seconds it may take
  double give_up_;          ///< when everything must be over
  std::optional<double> candidate_left_;
  std::optional<Phase> phase_;
};

}  // namespace moetune
