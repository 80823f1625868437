// What a series of timings says. Pure functions.
//
// The noise of a timing is one-sided and comes in bursts: another process, an interrupt, a clock that drops. A mean
// follows the bursts, a minimum follows the luckiest sample and never settles. The median ignores both as long as less
// than half of the samples are spoiled, and the median absolute deviation (MAD) measures the spread of the unspoiled
// ones. What no formula here sees is a burst longer than the series: samples are not independent. That is why a
// verdict also asks for a least gain (measure/verdict.h) and why finalists are timed in turn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moetune {

/// Middle value; the mean of the two middle ones of an even number; 0 of none. The span's order does not matter.
[[nodiscard]] double median(std::span<const double> values);

/// Value below which a fraction q (0 … 1) of the values lies, linearly interpolated; 0 of none.
[[nodiscard]] double quantile(std::span<const double> values, double q);

/// The larger of 1.4826 · median(|v - median|) and (upper quartile - lower quartile) / 1.349: each is the standard
/// deviation where the noise is normal (Rousseeuw & Croux 1993). The first alone answers 0 for a series that jumps
/// between two values.
[[nodiscard]] double robust_spread(std::span<const double> values);

struct Interval {
  double low = 0, high = 0;

  bool operator==(const Interval&) const = default;
};

/// Where the true median lies with 95 % confidence, whatever the distribution: from the l-th smallest to the l-th
/// largest value, l the largest number for which a fair coin thrown n times shows fewer than l heads in at most 2.5 %
/// of all cases (Conover, Practical Nonparametric Statistics, 3.2). Fewer than six values bound nothing that well: the
/// smallest and the largest. {0, 0} of none.
[[nodiscard]] Interval median_interval(std::span<const double> values);

struct Summary {
  std::int64_t samples = 0;  ///< usable ones: finite and positive
  std::int64_t dropped = 0;  ///< the others
  double median = 0;
  double spread = 0;  ///< robust_spread
  double error = 0;   ///< standard error of the median: sqrt(pi/2) · spread / sqrt(samples)
  Interval interval;  ///< median_interval

  /// error / median; 1 where there is nothing to divide.
  [[nodiscard]] double noise() const { return median > 0 ? error / median : 1.0; }
};
/// Of the usable values: those that are finite and positive.
[[nodiscard]] Summary summarize(std::span<const double> values);

}  // namespace moetune
