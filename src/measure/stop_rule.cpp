#include "measure/stop_rule.h"

#include <cmath>

#include "measure/stats.h"

namespace moetune {

void Stopper::add(double us) {
  samples_.push_back(us);
  if (std::isfinite(us) && us > 0) total_s_ += us * 1e-6;
  cause_ = judge();
}

StopCause Stopper::judge() const {
  const auto count = static_cast<std::int64_t>(samples_.size());
  if (count >= rule_.max_samples) return StopCause::samples;
  if (total_s_ >= rule_.max_s) return StopCause::time;
  if (count < rule_.min_samples || total_s_ < rule_.min_s) return StopCause::not_yet;
  return summarize(samples_).noise() <= rule_.relative_noise ? StopCause::quiet : StopCause::not_yet;
}

}  // namespace moetune
