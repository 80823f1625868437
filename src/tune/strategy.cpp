#include "tune/strategy.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "tune/local_search.h"
#include "tune/urn.h"

namespace moetune {
namespace {

std::string key_of(const Candidate& candidate) { return candidate.backend + " " + describe(candidate.config); }

/// Every candidate, one backend after the other, in the order of the space.
class Exhaustive final : public Strategy {
 public:
  explicit Exhaustive(SearchSpace space) : Strategy(std::move(space)) {
    for (const auto& part : this->space().parts) left_.push_back({part.backend, Combinations(part.space)});
  }

 private:
  struct Left {
    std::string backend;
    Combinations combinations;
    std::uint64_t next = 0;
  };

  std::optional<Candidate> propose() override {
    for (; !left_.empty(); left_.pop_front()) {
      auto& [backend, combinations, next] = left_.front();
      while (next < combinations.count()) {
        auto config = combinations.at(next++);
        if (!config) continue;
        Candidate candidate{backend, std::move(*config)};
        if (!seen(candidate)) return candidate;
      }
    }
    return std::nullopt;
  }

  std::deque<Left> left_;
};

/// Every candidate in random order.
class Shuffled final : public Strategy {
 public:
  Shuffled(SearchSpace space, std::uint64_t seed) : Strategy(std::move(space)), random_(seed) {
    for (const auto& part : this->space().parts) urns_.emplace_back(part.backend, Urn(part.space));
  }

 private:
  std::optional<Candidate> propose() override {
    std::uint64_t left = 0;
    for (const auto& [backend, urn] : urns_) left += urn.left();
    while (left > 0) {
      // An urn in proportion to what it holds, so that all that is left is equally likely.
      std::uint64_t place = random_() % left;
      auto drawn = urns_.begin();
      for (; place >= drawn->second.left(); ++drawn) place -= drawn->second.left();
      left -= drawn->second.left();
      auto config = drawn->second.take(random_);
      left += drawn->second.left();
      if (!config) continue;
      Candidate candidate{drawn->first, std::move(*config)};
      if (!seen(candidate)) return candidate;
    }
    return std::nullopt;
  }

  std::mt19937_64 random_;
  std::vector<std::pair<std::string, Urn>> urns_;
};

/// The value of the axis that differs from `wanted` by the least factor.
std::int64_t nearest_value(const Axis& axis, std::int64_t wanted) {
  const auto scale = [](std::int64_t value) { return std::asinh(static_cast<double>(value)); };  // log that knows 0
  return *std::min_element(axis.values.begin(), axis.values.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(scale(a) - scale(wanted)) < std::abs(scale(b) - scale(wanted));
  });
}

}  // namespace

const SearchSpace::Part* SearchSpace::find(std::string_view backend) const {
  const auto found =
      std::find_if(parts.begin(), parts.end(), [&](const Part& part) { return part.backend == backend; });
  return found == parts.end() ? nullptr : &*found;
}

bool SearchSpace::contains(const Candidate& candidate) const {
  const Part* part = find(candidate.backend);
  return part != nullptr && part->space.contains(candidate.config);
}

std::optional<Candidate> nearest_candidate(const SearchSpace& space, const Candidate& candidate) {
  const SearchSpace::Part* part = space.find(candidate.backend);
  if (part == nullptr) return std::nullopt;
  Candidate nearest{candidate.backend, {}};
  for (const auto& axis : part->space.axes) {
    const auto same_name = [&](const auto& value) { return value.first == axis.name; };
    const auto& theirs = candidate.config.values;
    const auto& ours = part->first.values;
    auto wanted = std::find_if(theirs.begin(), theirs.end(), same_name);
    if (wanted == theirs.end() && (wanted = std::find_if(ours.begin(), ours.end(), same_name)) == ours.end())
      return std::nullopt;
    if (axis.values.empty()) return std::nullopt;
    nearest.config.values.emplace_back(axis.name, nearest_value(axis, wanted->second));
  }
  if (!part->space.contains(nearest.config)) return std::nullopt;
  return nearest;
}

Strategy::Strategy(SearchSpace space) : space_(std::move(space)) {
  for (const auto& part : space_.parts) first_.push_back({part.backend, part.first});
  for (const auto& seed : space_.seeds)
    if (auto candidate = nearest_candidate(space_, seed)) first_.push_back(std::move(*candidate));
}

std::optional<Candidate> Strategy::next() {
  std::optional<Candidate> candidate;
  while (!first_.empty() && !candidate) {
    if (!seen(first_.front())) candidate = std::move(first_.front());
    first_.pop_front();
  }
  if (!candidate) candidate = propose();
  if (candidate) seen_.insert(key_of(*candidate));
  return candidate;
}

void Strategy::tell(const Candidate& candidate, std::optional<double> cost) {
  if (cost && !(std::isfinite(*cost) && *cost > 0)) cost.reset();
  seen_.insert(key_of(candidate));
  if (cost && (!best_ || *cost < best_->second)) best_ = {candidate, *cost};
  learn(candidate, cost);
}

bool Strategy::seen(const Candidate& candidate) const { return seen_.contains(key_of(candidate)); }

std::unique_ptr<Strategy> make_strategy(StrategyKind kind, SearchSpace space, std::uint64_t seed) {
  switch (kind) {
    case StrategyKind::exhaustive:
      return std::make_unique<Exhaustive>(std::move(space));
    case StrategyKind::random:
      return std::make_unique<Shuffled>(std::move(space), seed);
    case StrategyKind::local:
      break;
  }
  return std::make_unique<LocalSearch>(std::move(space), seed);
}

}  // namespace moetune
