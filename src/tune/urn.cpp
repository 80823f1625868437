#include "tune/urn.h"

#include <algorithm>
#include <utility>

namespace moetune {

Combinations::Combinations(Space space) : space_(std::move(space)) {
  constexpr std::uint64_t kMax = std::uint64_t{1} << 62;
  for (const auto& axis : space_.axes) {
    const std::uint64_t values = axis.values.size();
    count_ = values != 0 && count_ > kMax / values ? kMax : count_ * values;
  }
}

std::optional<Config> Combinations::at(std::uint64_t number) const {
  Config config;
  for (const auto& axis : space_.axes) config.values.emplace_back(axis.name, 0);
  for (std::size_t a = space_.axes.size(); a-- > 0;) {
    const auto& values = space_.axes[a].values;
    config.values[a].second = values[static_cast<std::size_t>(number % values.size())];
    number /= values.size();
  }
  if (space_.admits && !space_.admits(config)) return std::nullopt;
  return config;
}

Urn::Urn(Space space) : combinations_(std::move(space)), left_(combinations_.count()) {}

std::optional<Config> Urn::take(std::mt19937_64& random) {
  const auto at = [&](std::uint64_t place) {
    const auto found = moved_.find(place);
    return found == moved_.end() ? place : found->second;
  };
  while (left_ > 0) {
    const std::uint64_t place = random() % left_;
    const std::uint64_t number = at(place);
    --left_;
    moved_[place] = at(left_);
    moved_.erase(left_);
    if (auto config = combinations_.at(number)) return config;
  }
  return std::nullopt;
}

}  // namespace moetune
