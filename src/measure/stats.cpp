#include "measure/stats.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moetune {

namespace {

std::vector<double> sorted_copy(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace

double quantile(std::span<const double> values, double q) {
  if (values.empty()) return 0;
  const std::vector<double> sorted = sorted_copy(values);
  const double place = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double median(std::span<const double> values) { return quantile(values, 0.5); }

double robust_spread(std::span<const double> values) {
  const double middle = median(values);
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return std::max(1.4826 * median(distances), (quantile(values, 0.75) - quantile(values, 0.25)) / 1.349);
}

Interval median_interval(std::span<const double> values) {
  if (values.empty()) return {};
  const std::vector<double> sorted = sorted_copy(values);
  constexpr double kTail = 0.025;
  const auto n = static_cast<double>(sorted.size());
  // Probability of exactly k heads, k = 0, 1, …; by logarithms, since 2^-n underflows from 1075 values on.
  double log_exactly = -n * std::numbers::ln2;
  double fewer = std::exp(log_exactly);
  std::size_t below = 0;  // l - 1
  for (double k = 1; k < n; ++k) {
    log_exactly += std::log((n - k + 1) / k);
    fewer += std::exp(log_exactly);
    if (fewer > kTail) break;
    ++below;
  }
  return {sorted[below], sorted[sorted.size() - 1 - below]};
}

Summary summarize(std::span<const double> values) {
  std::vector<double> usable;
  for (const double value : values)
    if (std::isfinite(value) && value > 0) usable.push_back(value);
  Summary summary;
  summary.samples = static_cast<std::int64_t>(usable.size());
  summary.dropped = static_cast<std::int64_t>(values.size() - usable.size());
  summary.median = median(usable);
  summary.spread = robust_spread(usable);
  summary.interval = median_interval(usable);
  if (!usable.empty())
    summary.error = std::sqrt(std::numbers::pi / 2) * summary.spread / std::sqrt(static_cast<double>(usable.size()));
  return summary;
}

}  // namespace moetune
