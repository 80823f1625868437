#include "cpu/tile_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace moetune {

std::int64_t processors(const Target& target) { return std::max<std::int64_t>(target.cores.value_or(1), 1); }

std::vector<std::int64_t> powers_of_two(std::int64_t limit, std::int64_t most) {
  std::vector<std::int64_t> values = {1};
  while (values.back() < limit && values.back() < most) values.push_back(2 * values.back());
  return values;
}

Axis threads_axis(const Target& target) {
  const std::int64_t all = processors(target);
  auto values = powers_of_two(all, all);
  if (values.back() > all) values.back() = all;
  return {"threads", values, "threads that work on a call"};
}

Axis schedule_axis() {
  return {"dynamic", {0, 1}, "1: a thread that is free takes the next tile; 0: tiles are dealt in equal parts"};
}

double row_bytes(const WeightSpec& spec, std::int64_t k) {
  constexpr std::int64_t kRows = 1024;
  return static_cast<double>(matrix_bytes(spec, kRows, k).total()) / kRows;
}

std::int64_t tile_rows(const WeightSpec& spec, std::int64_t n, std::int64_t k, std::int64_t bytes, std::int64_t step) {
  const auto rows = static_cast<std::int64_t>(static_cast<double>(bytes) / row_bytes(spec, k));
  return std::min(n, ceil_div(std::max<std::int64_t>(rows, 1), step) * step);
}

Status check_config(const Space& space, const Config& config) {
  if (space.contains(config)) return {};
  std::vector<std::string> axes;
  for (const auto& axis : space.axes)
    axes.push_back(fmt::format("{} in {{{}}}", axis.name, fmt::join(axis.values, " ")));
  return fail(fmt::format("config \"{}\" is not in the space", describe(config)),
              {fmt::format("axes, in this order: {}", fmt::join(axes, ", "))});
}

}  // namespace moetune
