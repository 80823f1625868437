#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/random.h"
#include "moe/routing.h"

namespace moetune {
namespace {

/// Draws distinct experts for one token after another.
class ExpertDraw {
 public:
  ExpertDraw(const Problem& problem, RoutingKind kind, SplitMix64& random)
      : kind_(kind), experts_(static_cast<std::uint32_t>(problem.experts_global)), random_(random), order_(experts_) {
    std::iota(order_.begin(), order_.end(), 0U);
    hot_ = static_cast<std::uint32_t>(problem.first_expert) +
           random_.below(static_cast<std::uint32_t>(std::max<std::int64_t>(problem.experts, 1)));
    next_ = random_.below(experts_);
    if (kind_ == RoutingKind::power_law) set_popularity();
  }

  /// Fills `chosen` with distinct global experts.
  void draw(std::span<std::uint32_t> chosen) {
    switch (kind_) {
      case RoutingKind::uniform:
        return shuffle(chosen, 0);
      case RoutingKind::one_hot:
        std::swap(order_[0], *std::find(order_.begin(), order_.end(), hot_));
        chosen[0] = hot_;
        return shuffle(chosen, 1);
      case RoutingKind::round_robin:
        for (std::uint32_t& expert : chosen) {
          expert = next_;
          next_ = (next_ + 1) % experts_;
        }
        return;
      case RoutingKind::power_law:
        return draw_by_popularity(chosen);
    }
  }

 private:
  /// A partial Fisher-Yates shuffle: slots from `first` on get what no earlier slot of order_ holds.
  void shuffle(std::span<std::uint32_t> chosen, std::size_t first) {
    for (std::size_t slot = first; slot < chosen.size(); ++slot) {
      const std::size_t other = slot + random_.below(experts_ - static_cast<std::uint32_t>(slot));
      std::swap(order_[slot], order_[other]);
      chosen[slot] = order_[slot];
    }
  }

  /// Popularity rank^-1.2 over experts in random order, as integers, so that the last bit of pow() decides nothing.
  void set_popularity() {
    constexpr double kExponent = -1.2;
    constexpr double kUnit = 1 << 20;
    std::vector<std::uint32_t> rank(experts_);
    shuffle(rank, 0);
    popularity_.resize(experts_);
    for (std::uint32_t i = 0; i < experts_; ++i)
      popularity_[rank[i]] =
          std::max(1U, static_cast<std::uint32_t>(std::lround(kUnit * std::pow(i + 1.0, kExponent))));
    total_ = std::accumulate(popularity_.begin(), popularity_.end(), 0U);
  }

  /// Draws in proportion to popularity, without putting back.
  void draw_by_popularity(std::span<std::uint32_t> chosen) {
    std::vector<std::uint32_t> left = popularity_;
    std::uint32_t total = total_;
    for (std::uint32_t& expert : chosen) {
      std::uint32_t mark = random_.below(total);
      expert = 0;
      while (mark >= left[expert]) mark -= left[expert++];
      total -= left[expert];
      left[expert] = 0;
    }
  }

  RoutingKind kind_;
  std::uint32_t experts_;
  SplitMix64& random_;
  std::vector<std::uint32_t> order_;  ///< a permutation of the experts
  std::uint32_t hot_ = 0;
  std::uint32_t next_ = 0;
  std::vector<std::uint32_t> popularity_;
  std::uint32_t total_ = 0;
};

/// Positive weights that sum to `scaling`; none below a hundredth of another.
void draw_weights(SplitMix64& random, double scaling, std::span<float> weights) {
  constexpr std::uint32_t kRange = 1000, kLeast = 10;
  std::vector<std::uint32_t> parts(weights.size());
  for (std::uint32_t& part : parts) part = kLeast + random.below(kRange - kLeast);
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  for (std::size_t slot = 0; slot < weights.size(); ++slot)
    weights[slot] = static_cast<float>(static_cast<double>(parts[slot]) / sum * scaling);
}

/// Named routings over local experts, for one problem.
class HostileMaker {
 public:
  HostileMaker(const Problem& problem, std::uint64_t seed)
      : top_k_(static_cast<std::size_t>(problem.top_k)),
        last_(static_cast<std::int32_t>(problem.experts - 1)),
        scaling_(problem.router.scaling),
        random_(seed) {}

  /// `id_of(token, slot)` says the local expert or -1.
  template <class IdOf>
  void add(std::string_view name, std::size_t tokens, IdOf&& id_of) {
    Routing routing{static_cast<std::int64_t>(tokens), static_cast<std::int64_t>(top_k_), {}, {}};
    routing.weights.resize(tokens * top_k_);
    for (std::size_t token = 0; token < tokens; ++token) {
      for (std::size_t slot = 0; slot < top_k_; ++slot) routing.ids.push_back(id_of(token, slot));
      draw_weights(random_, scaling_, std::span(routing.weights).subspan(token * top_k_, top_k_));
    }
    made_.push_back({name, std::move(routing)});
  }

  [[nodiscard]] Routing& latest() { return made_.back().routing; }
  [[nodiscard]] std::vector<NamedRouting> take() { return std::move(made_); }
  [[nodiscard]] std::int32_t last() const { return last_; }
  [[nodiscard]] std::int32_t any() {
    return static_cast<std::int32_t>(random_.below(static_cast<std::uint32_t>(last_) + 1));
  }
  /// Distinct within a token as long as there are enough experts.
  [[nodiscard]] std::int32_t spread(std::size_t token, std::size_t slot) const {
    return static_cast<std::int32_t>((token * top_k_ + slot) % (static_cast<std::size_t>(last_) + 1));
  }

 private:
  std::size_t top_k_;
  std::int32_t last_;
  double scaling_;
  SplitMix64 random_;
  std::vector<NamedRouting> made_;
};

}  // namespace

Routing random_routing(const Problem& problem, std::int64_t tokens, RoutingKind kind, std::uint64_t seed) {
  if (tokens < 1 || problem.top_k < 1 || problem.top_k > problem.experts_global) return {0, problem.top_k, {}, {}};
  const auto top_k = static_cast<std::size_t>(problem.top_k);
  const std::size_t pairs = static_cast<std::size_t>(tokens) * top_k;
  Routing routing{tokens, problem.top_k, std::vector<std::int32_t>(pairs), std::vector<float>(pairs)};
  SplitMix64 random(seed);
  ExpertDraw draw(problem, kind, random);
  std::vector<std::uint32_t> chosen(top_k);
  for (std::size_t pair = 0; pair < pairs; pair += top_k) {
    draw.draw(chosen);
    std::transform(chosen.begin(), chosen.end(), routing.ids.begin() + static_cast<std::ptrdiff_t>(pair),
                   [&problem](std::uint32_t expert) { return local_expert(problem, expert); });
    draw_weights(random, problem.router.scaling, std::span(routing.weights).subspan(pair, top_k));
  }
  return routing;
}

std::vector<NamedRouting> hostile_routings(const Problem& problem, std::uint64_t seed) {
  if (problem.experts < 1 || problem.top_k < 1) return {};
  HostileMaker make(problem, seed);
  const std::int32_t last = make.last();
  make.add("one token", 1, [&](std::size_t token, std::size_t slot) { return make.spread(token, slot); });
  make.add("one token, one expert, the other slots empty", 1,
           [&](std::size_t, std::size_t slot) { return slot == 0 ? last : -1; });
  make.add("every pair is another device's", 7, [](std::size_t, std::size_t) { return -1; });
  make.add("all tokens to the first expert", 67, [](std::size_t, std::size_t slot) { return slot == 0 ? 0 : -1; });
  make.add("all tokens to the last expert", 67, [&](std::size_t, std::size_t slot) { return slot == 0 ? last : -1; });
  make.add("all tokens to the same experts", 33, [&](std::size_t, std::size_t slot) { return make.spread(0, slot); });
  make.add("one expert in every slot", 19, [&](std::size_t token, std::size_t) { return make.spread(token, 0); });
  make.add("experts drawn with duplicates", 29, [&](std::size_t, std::size_t) { return make.any(); });
  make.add("half of the pairs are another device's", 31, [&](std::size_t token, std::size_t slot) {
    return (token + slot) % 2 == 0 ? make.spread(token, slot) : -1;
  });
  make.add("only the last token has experts here", 17,
           [&](std::size_t token, std::size_t slot) { return token == 16 ? make.spread(token, slot) : -1; });
  make.add("weights of zero", 13, [&](std::size_t token, std::size_t slot) { return make.spread(token, slot); });
  std::fill(make.latest().weights.begin(), make.latest().weights.end(), 0.0F);
  make.add("one weight of zero in each token", 13,
           [&](std::size_t token, std::size_t slot) { return make.spread(token, slot); });
  for (std::size_t pair = 0; pair < make.latest().weights.size(); pair += static_cast<std::size_t>(problem.top_k))
    make.latest().weights[pair] = 0.0F;
  make.add("every expert has one token", static_cast<std::size_t>(last) + 1,
           [](std::size_t token, std::size_t slot) { return slot == 0 ? static_cast<std::int32_t>(token) : -1; });
  return make.take();
}

}  // namespace moetune
