#include "measure/verdict.h"

#include <algorithm>
#include <cmath>

namespace moetune {

Speed compare(const Summary& candidate, const Summary& baseline) {
  if (candidate.samples == 0 || baseline.samples == 0) return Speed::tie;
  const double difference = baseline.median - candidate.median;
  const double noise = 2 * std::hypot(candidate.error, baseline.error);
  if (std::abs(difference) <= std::max(kLeastGain * baseline.median, noise)) return Speed::tie;
  return difference > 0 ? Speed::faster : Speed::slower;
}

}  // namespace moetune
