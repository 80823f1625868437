#include "tune/local_search.h"

#include <algorithm>
#include <cmath>

namespace moetune {
namespace {

// Found by replaying landscapes of 330 to 980 candidates (bench/search_replay). None matters much: half or twice of
// each moves the share of searches that reach 97 % of the best within 15 % of the evaluations by one or two points.
constexpr double kLoyalty = 5;  // a backend whose best is 20 % slower than the best of all gets exp(-1) of the turns …
constexpr double kHope = 0.4;   // … judged by what its best may become: this part less, over the root of evaluations
constexpr std::size_t kDraws = 8;   // out of the urn at a time; the most promising is proposed
constexpr double kFailureCost = 1;  // a value that always fails is taken for e times slower
constexpr int kJumps = 4;           // thought of at a time; the most promising is proposed
constexpr int kJumpTries = 20;      // to find those where most candidates are seen or not admitted
constexpr int kJumpsBeforeRestart = 2;

std::ptrdiff_t position(const Axis& axis, std::int64_t value) {
  return std::find(axis.values.begin(), axis.values.end(), value) - axis.values.begin();
}

}  // namespace

void ValueRecord::add(const Config& config, std::optional<double> cost) {
  const auto count = [&](Tally& tally) {
    ++(cost ? tally.fine : tally.failed);
    if (cost) tally.sum += std::log(*cost);
  };
  count(all_);
  for (const auto& value : config.values) count(tallies_[value]);
}

double ValueRecord::expected(const Config& config) const {
  const double mean = all_.fine == 0 ? 0 : all_.sum / all_.fine;
  double expected = 0;
  for (const auto& value : config.values) {
    const auto found = tallies_.find(value);
    if (found == tallies_.end()) continue;
    // One imagined average result more, so that a single lucky one does not decide.
    const auto& tally = found->second;
    expected += (tally.sum - mean * tally.fine) / (tally.fine + 1);
    expected += kFailureCost * tally.failed / (tally.fine + tally.failed + 1);
  }
  return expected;
}

bool ValueRecord::looks_broken(const Config& config) const {
  return std::any_of(config.values.begin(), config.values.end(), [&](const auto& value) {
    const auto found = tallies_.find(value);
    return found != tallies_.end() && found->second.fine == 0 && found->second.failed >= kFailures;
  });
}

LocalSearch::LocalSearch(SearchSpace space, std::uint64_t seed) : Strategy(std::move(space)), random_(seed) {
  for (const auto& part : this->space().parts) walks_.emplace_back(&part);
}

bool LocalSearch::fresh(const Walk& walk, const Config& config) const {
  return walk.part->space.contains(config) && !seen({walk.part->backend, config});
}

std::optional<Candidate> LocalSearch::propose() {
  if (uniform(random_) >= kExploration) {
    if (Walk* walk = choose_walk()) {
      auto config = step(*walk);
      if (!config) config = jump(*walk);
      if (config) return Candidate{walk->part->backend, std::move(*config)};
    }
  }
  return explore();
}

LocalSearch::Walk* LocalSearch::choose_walk() {
  if (!best()) return nullptr;
  const auto weight = [&](const Walk& walk) {
    if (!walk.best) return 0.0;
    const double hoped = walk.best->second * (1 - kHope / std::sqrt(static_cast<double>(walk.record.evaluated())));
    return std::exp(-kLoyalty * std::max(0.0, hoped / best()->second - 1));
  };
  double total = 0;
  for (const auto& walk : walks_) total += weight(walk);
  double place = uniform(random_) * total;
  Walk* chosen = nullptr;
  for (auto& walk : walks_) {
    if (weight(walk) == 0) continue;
    chosen = &walk;
    if ((place -= weight(walk)) < 0) break;
  }
  return chosen;
}

std::optional<Candidate> LocalSearch::explore() {
  if (walks_.empty()) return std::nullopt;
  // Backends alike, however large their spaces are.
  const std::size_t first = pick(random_, walks_.size());
  for (std::size_t i = 0; i < walks_.size(); ++i) {
    Walk& walk = walks_[(first + i) % walks_.size()];
    if (auto config = draw(walk)) return Candidate{walk.part->backend, std::move(*config)};
  }
  return std::nullopt;
}

std::optional<Config> LocalSearch::draw(Walk& walk) {
  std::erase_if(walk.drawn, [&](const Config& config) { return !fresh(walk, config); });
  while (walk.drawn.size() < kDraws) {
    auto config = walk.urn.take(random_);
    if (!config) break;
    if (fresh(walk, *config)) walk.drawn.push_back(std::move(*config));
  }
  if (walk.drawn.empty()) return std::nullopt;
  const auto better = [&](const Config& a, const Config& b) {
    const bool broken_a = walk.record.looks_broken(a), broken_b = walk.record.looks_broken(b);
    return broken_a != broken_b ? broken_b : walk.record.expected(a) < walk.record.expected(b);
  };
  const auto chosen = std::min_element(walk.drawn.begin(), walk.drawn.end(), better);
  Config config = std::move(*chosen);
  walk.drawn.erase(chosen);
  return config;
}

std::optional<Config> LocalSearch::step(Walk& walk) {
  while (!walk.steps.empty()) {
    Config config = std::move(walk.steps.back());
    walk.steps.pop_back();
    if (fresh(walk, config) && !walk.record.looks_broken(config)) return config;
  }
  return std::nullopt;
}

std::optional<Config> LocalSearch::jump(Walk& walk) {
  if (walk.part->space.axes.empty() || !walk.best) return std::nullopt;
  ++walk.idle_jumps;
  if (walk.idle_jumps > kJumpsBeforeRestart && walk.idle_jumps % 2 == 0) {
    walk.centre.reset();
    return draw(walk);
  }
  std::optional<Config> chosen;
  for (int tries = 0, found = 0; tries < kJumpTries && found < kJumps; ++tries) {
    Config config = away_from_best(walk);
    if (!fresh(walk, config) || walk.record.looks_broken(config)) continue;
    ++found;
    if (!chosen || walk.record.expected(config) < walk.record.expected(*chosen)) chosen = std::move(config);
  }
  if (chosen) walk.centre.reset();  // what it costs makes it the new centre, if it runs
  return chosen;
}

Config LocalSearch::away_from_best(const Walk& walk) {
  const auto& axes = walk.part->space.axes;
  const int extra_axes = std::min(walk.idle_jumps / 2, 3), extra_reach = walk.idle_jumps / 3;
  Config config = walk.best->first;
  for (std::size_t left = 2 + pick(random_, static_cast<std::size_t>(1 + extra_axes)); left > 0; --left) {
    const std::size_t a = pick(random_, axes.size());
    const auto far = static_cast<std::ptrdiff_t>(1 + pick(random_, static_cast<std::size_t>(1 + extra_reach)));
    const auto to = position(axes[a], config.values[a].second) + (pick(random_, 2) == 0 ? -far : far);
    const auto last = static_cast<std::ptrdiff_t>(axes[a].values.size()) - 1;
    config.values[a].second = axes[a].values[static_cast<std::size_t>(std::clamp(to, std::ptrdiff_t{0}, last))];
  }
  return config;
}

void LocalSearch::move_centre(Walk& walk, const Config& config, double cost) {
  walk.centre = {config, cost};
  walk.steps.clear();
  const auto& axes = walk.part->space.axes;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const auto at = position(axes[a], config.values[a].second);
    for (const auto to : {at - 1, at + 1}) {
      if (to < 0 || to >= static_cast<std::ptrdiff_t>(axes[a].values.size())) continue;
      Config next = config;
      next.values[a].second = axes[a].values[static_cast<std::size_t>(to)];
      if (fresh(walk, next)) walk.steps.push_back(std::move(next));
    }
  }
  for (std::size_t i = walk.steps.size(); i > 1; --i) std::swap(walk.steps[i - 1], walk.steps[pick(random_, i)]);
  std::stable_sort(walk.steps.begin(), walk.steps.end(),
                   [&](const Config& a, const Config& b) { return walk.record.expected(a) > walk.record.expected(b); });
}

void LocalSearch::learn(const Candidate& candidate, std::optional<double> cost) {
  const auto walk =
      std::find_if(walks_.begin(), walks_.end(), [&](const Walk& w) { return w.part->backend == candidate.backend; });
  if (walk == walks_.end()) return;
  walk->record.add(candidate.config, cost);
  if (!cost || !walk->part->space.contains(candidate.config)) return;
  if (!walk->best || *cost < walk->best->second) {
    walk->best = {candidate.config, *cost};
    walk->idle_jumps = 0;
  }
  if (!walk->centre || *cost < walk->centre->second) move_centre(*walk, candidate.config, *cost);
}

}  // namespace moetune
