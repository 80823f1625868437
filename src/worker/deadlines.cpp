#include "worker/deadlines.h"

#include <algorithm>

#include "worker/checker.h"
#include "worker/traffic.h"

namespace moetune {
namespace {

constexpr double kBaseS = 30;
constexpr double kCeilingsS = 120;

// Reading a checkpoint from a network disk that was asleep.
constexpr double kLoadBytesPerS = 50e6;
// The reference on one busy core: it dequantises a weight at a time and adds in fp64.
constexpr double kReferenceWeightsPerS = 20e6;
constexpr double kReferenceFlopsPerS = 100e6;
// A plain loop on one busy core, with weights that come through a slow bus.
constexpr double kCallBytesPerS = 200e6;
constexpr double kCallFlopsPerS = 500e6;
// Nobody tunes for what is so many times slower than another candidate.
constexpr double kTooSlow = 100;

/// The worker's own work, which no candidate is to be blamed for.
bool is_own(Phase phase) { return phase == Phase::open || phase == Phase::reference || phase == Phase::ceilings; }

}  // namespace

PhaseLimits phase_limits(const Problem& problem) {
  const double bytes = static_cast<double>(expert_bytes(problem)) * static_cast<double>(problem.experts);
  PhaseLimits limits;
  limits.set(Phase::open, kBaseS + bytes / kLoadBytesPerS);
  limits.set(Phase::ceilings, kCeilingsS);
  return limits;
}

PhaseLimits phase_limits(const Problem& problem, const Workload& workload, const StopRule& stop,
                         std::optional<double> known_call_s) {
  PhaseLimits limits = phase_limits(problem);
  const auto experts_of = [&](std::int64_t tokens) {
    return static_cast<double>(std::min(problem.experts, tokens * problem.top_k));
  };
  // A call of few tokens is one of several that are compared (worker/checker.h).
  const double checked_calls = 1.0 + static_cast<double>(kEnoughTokens) / static_cast<double>(workload.tokens);
  const std::int64_t compared = std::min(workload.tokens, kAllTokens);
  const double weights = layer_flops(problem, 1) / 2 * experts_of(compared);
  const double reference_s =
      weights / kReferenceWeightsPerS + layer_flops(problem, compared * problem.top_k) / kReferenceFlopsPerS;
  limits.set(Phase::reference, kBaseS + checked_calls * reference_s);
  const double repack_s = limits.of(Phase::open);
  limits.set(Phase::load, repack_s);
  limits.set(Phase::configure, kBaseS + repack_s);  // kernels are compiled there
  const double bytes = experts_of(workload.tokens) * static_cast<double>(expert_bytes(problem));
  double call_s = bytes / kCallBytesPerS + layer_flops(problem, workload.tokens * problem.top_k) / kCallFlopsPerS;
  if (known_call_s) call_s = std::min(call_s, kTooSlow * *known_call_s);
  limits.set(Phase::check, kBaseS + checked_calls * call_s);
  // The call that does not count, and the one during which the rule is found to be met.
  limits.set(Phase::time, kBaseS + 2 * stop.max_s + 2 * call_s);
  return limits;
}

PhaseClock::PhaseClock(double now, const PhaseLimits& limits, double reply_s, std::optional<double> candidate_s,
                       double total_s)
    : limits_(limits), entered_(now), limit_(reply_s), give_up_(now + total_s), candidate_left_(candidate_s) {}

void PhaseClock::enter(Phase phase, double now) {
  const double spent = now - entered_;
  if (candidate_left_ && phase_ && !is_own(*phase_)) *candidate_left_ -= spent;
  phase_ = phase;
  entered_ = now;
  limit_ = limits_.of(phase);
  if (candidate_left_ && !is_own(phase)) limit_ = std::max(0.0, *candidate_left_);
}

double PhaseClock::deadline() const { return std::min(entered_ + limit_, give_up_); }

}  // namespace moetune
