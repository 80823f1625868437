#include "tune/strategy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tune/test_landscape.h"
#include "tune/urn.h"

namespace moetune {
namespace {

constexpr std::array kKinds = {StrategyKind::local, StrategyKind::random, StrategyKind::exhaustive};

std::string name_of(const Candidate& candidate) { return candidate.backend + " " + describe(candidate.config); }

Config point(std::int64_t x, std::int64_t y) { return {{{"x", x}, {"y", y}}}; }

/// 8 x 8 with the corner above the diagonal cut off: 8 + 8·9/2 - 8 = 36 admitted.
SearchSpace triangle() {
  Space space{{{"x", {0, 1, 2, 3, 4, 5, 6, 7}, ""}, {"y", {0, 1, 2, 3, 4, 5, 6, 7}, ""}},
              [](const Config& c) { return c.get("y") <= c.get("x"); }};
  return {{{"t:a", space, point(7, 0)}}, {}};
}

/// triangle() and a second backend of 3 candidates.
SearchSpace two_backends() {
  SearchSpace space = triangle();
  space.parts.push_back({"t:b", {{{"z", {1, 2, 4}, ""}}, {}}, {{{"z", 2}}}});
  return space;
}

using Cost = std::function<std::optional<double>(const Candidate&)>;

/// Proposals until the space is exhausted or `limit`.
std::vector<Candidate> run(Strategy& strategy, const Cost& cost, std::size_t limit = 10'000) {
  std::vector<Candidate> proposed;
  while (proposed.size() < limit) {
    const auto candidate = strategy.next();
    if (!candidate) break;
    proposed.push_back(*candidate);
    strategy.tell(*candidate, cost(*candidate));
  }
  return proposed;
}

std::optional<double> bowl(const Candidate& candidate) {
  if (candidate.backend != "t:a") return 500;
  return 1 + std::pow(candidate.config.get("x") - 5, 2) + std::pow(candidate.config.get("y") - 3, 2);
}

TEST(Strategy, EveryCandidateOnceThenNothing) {
  for (const auto kind : kKinds)
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto strategy = make_strategy(kind, two_backends(), seed);
      const auto proposed = run(*strategy, bowl);
      std::set<std::string> names;
      for (const auto& candidate : proposed) {
        EXPECT_TRUE(two_backends().contains(candidate)) << name_of(candidate);
        names.insert(name_of(candidate));
      }
      EXPECT_EQ(proposed.size(), 39U) << to_string(kind);
      EXPECT_EQ(names.size(), 39U) << to_string(kind) << ": repeats";
      EXPECT_FALSE(strategy->next());
      ASSERT_TRUE(strategy->best());
      EXPECT_EQ(strategy->best()->first, (Candidate{"t:a", point(5, 3)}));
      EXPECT_EQ(strategy->best()->second, 1);
    }
}

TEST(Strategy, EverythingIsLookedAtEvenIfAllFails) {
  for (const auto kind : kKinds) {
    const auto strategy = make_strategy(kind, two_backends(), 3);
    EXPECT_EQ(run(*strategy, [](const auto&) { return std::nullopt; }).size(), 39U) << to_string(kind);
    EXPECT_FALSE(strategy->best());
  }
}

TEST(Strategy, DefaultsFirstThenSeeds) {
  for (const auto kind : kKinds) {
    SearchSpace space = two_backends();
    space.seeds = {{"t:a", point(6, 2)}, {"t:a", point(7, 0)}, {"t:none", point(1, 1)}, {"t:a", point(2, 6)}};
    const auto proposed = run(*make_strategy(kind, space, 1), bowl);
    EXPECT_EQ(proposed[0], (Candidate{"t:a", point(7, 0)}));
    EXPECT_EQ(proposed[1], (Candidate{"t:b", {{{"z", 2}}}}));
    EXPECT_EQ(proposed[2], (Candidate{"t:a", point(6, 2)}));
    EXPECT_EQ(proposed.size(), 39U);  // the seed that is the default, unknown or not admitted adds nothing
  }
}

TEST(Strategy, SameSeedSameProposals) {
  for (const auto kind : kKinds) {
    const auto once = run(*make_strategy(kind, two_backends(), 7), bowl);
    EXPECT_EQ(once, run(*make_strategy(kind, two_backends(), 7), bowl));
    const auto other = run(*make_strategy(kind, two_backends(), 8), bowl);
    EXPECT_EQ(once == other, kind == StrategyKind::exhaustive);
  }
}

TEST(Strategy, WhatIsToldUnaskedIsNotProposed) {
  for (const auto kind : kKinds) {
    const auto strategy = make_strategy(kind, triangle(), 1);
    strategy->tell({"t:a", point(5, 3)}, 1.0);
    strategy->tell({"t:elsewhere", point(1, 1)}, 0.5);  // knows no better than to remember it
    const auto proposed = run(*strategy, bowl);
    EXPECT_EQ(proposed.size(), 35U);
    EXPECT_EQ(std::count(proposed.begin(), proposed.end(), Candidate{"t:a", point(5, 3)}), 0);
    EXPECT_EQ(strategy->best()->second, 0.5);
  }
}

TEST(Strategy, ACostThatIsNoTimeIsAFailure) {
  const auto strategy = make_strategy(StrategyKind::local, triangle(), 1);
  for (const double cost : {std::nan(""), 0.0, -3.0, std::numeric_limits<double>::infinity()})
    strategy->tell(*strategy->next(), cost);
  EXPECT_FALSE(strategy->best());
}

TEST(Strategy, ADefaultOutsideItsSpaceIsACandidateToo) {
  SearchSpace space = triangle();
  space.parts[0].first = point(0, 7);
  for (const auto kind : kKinds) {
    const auto proposed = run(*make_strategy(kind, space, 1), bowl);
    EXPECT_EQ(proposed.front(), (Candidate{"t:a", point(0, 7)}));
    EXPECT_EQ(proposed.size(), 37U);
  }
}

TEST(Strategy, NoAxesNoBackends) {
  for (const auto kind : kKinds) {
    EXPECT_FALSE(make_strategy(kind, {}, 1)->next());
    const SearchSpace fixed{{{"t:fixed", {}, {}}}, {}};
    EXPECT_EQ(run(*make_strategy(kind, fixed, 1), [](const auto&) { return 1.0; }).size(), 1U);
    const SearchSpace empty_axis{{{"t:empty", {{{"x", {}, ""}}, {}}, {{{"x", 1}}}}}, {}};
    EXPECT_EQ(run(*make_strategy(kind, empty_axis, 1), [](const auto&) { return 1.0; }).size(), 1U);  // its default
  }
}

/// Ten axes of eight values: 2^30 candidates, none of which may be listed.
TEST(Strategy, ALargeSpaceCostsNothing) {
  Space space;
  Config first;
  for (char name = 'a'; name < 'k'; ++name) {
    space.axes.push_back({std::string(1, name), {0, 1, 2, 3, 4, 5, 6, 7}, ""});
    first.values.emplace_back(std::string(1, name), 0);
  }
  const auto distance = [](const Candidate& candidate) {
    double sum = 1;
    for (const auto& value : candidate.config.values) sum += std::abs(static_cast<double>(value.second) - 3);
    return std::optional(sum);
  };
  for (const auto kind : kKinds) {
    const auto strategy = make_strategy(kind, {{{"t:large", space, first}}, {}}, 1);
    EXPECT_EQ(run(*strategy, distance, 300).size(), 300U);
    if (kind == StrategyKind::local) {
      EXPECT_EQ(strategy->best()->second, 1) << "30 steps from its default to the optimum";
    }
  }
}

TEST(LocalSearch, FindsTheValleyOnTheOtherSide) {
  // The default sits in a wide valley of depth 10; the deep one is behind a ridge.
  Space space{{{"x", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, ""},
               {"y", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, ""}},
              {}};
  const auto cost = [](const Candidate& c) {
    const auto valley = [&](double x, double y) {
      return std::hypot(static_cast<double>(c.config.get("x")) - x, static_cast<double>(c.config.get("y")) - y);
    };
    return std::optional(std::min(10 + valley(2, 2), 5 + 3 * valley(12, 11)));
  };
  int found = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto strategy = make_strategy(StrategyKind::local, {{{"t:a", space, point(1, 1)}}, {}}, seed);
    run(*strategy, cost, 64);  // of 256: by chance alone one in four finds it
    found += strategy->best()->second == 5 ? 1 : 0;
  }
  EXPECT_GE(found, 35);
}

TEST(LocalSearch, ExploresAtLeastAFifth) {
  // A slope without an optimum in reach: every step from a centre is one axis from something seen. The rest explores.
  Space space{{{"x", {}, ""}, {"y", {}, ""}, {"z", {}, ""}}, {}};
  for (auto& axis : space.axes)
    for (std::int64_t value = 0; value < 100; ++value) axis.values.push_back(value);
  const auto strategy =
      make_strategy(StrategyKind::local, {{{"t:a", space, {{{"x", 99}, {"y", 99}, {"z", 99}}}}}, {}}, 11);
  const auto cost = [](const Candidate& c) {
    return std::optional(1.0 + static_cast<double>(c.config.get("x") + c.config.get("y") + c.config.get("z")));
  };
  const auto proposed = run(*strategy, cost, 400);
  const auto steps_apart = [](const Config& a, const Config& b) {
    std::int64_t apart = 0;
    for (std::size_t i = 0; i < a.values.size(); ++i) apart += std::abs(a.values[i].second - b.values[i].second);
    return apart;
  };
  int explored = 0;
  for (std::size_t i = 1; i < proposed.size(); ++i) {
    std::int64_t nearest = std::numeric_limits<std::int64_t>::max();
    for (std::size_t j = 0; j < i; ++j)
      nearest = std::min(nearest, steps_apart(proposed[i].config, proposed[j].config));
    explored += nearest > 1 ? 1 : 0;
  }
  EXPECT_GE(explored, 60);  // 80 expected, standard deviation 8
}

TEST(LocalSearch, LeavesBrokenValuesForLast) {
  // Half of the space fails: every candidate with y >= 4. The optimum is among the rest.
  const auto cost = [](const Candidate& c) { return c.config.get("y") >= 4 ? std::nullopt : bowl(c); };
  Space square{{{"x", {0, 1, 2, 3, 4, 5, 6, 7}, ""}, {"y", {0, 1, 2, 3, 4, 5, 6, 7}, ""}}, {}};
  int failures = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    for (const auto& candidate :
         run(*make_strategy(StrategyKind::local, {{{"t:a", square, point(0, 0)}}, {}}, seed), cost, 32))
      failures += cost(candidate) ? 0 : 1;
  // Drawn blindly it would be half of 32 · 50.
  EXPECT_LT(failures, 32 * 50 / 4);
}

TEST(LocalSearch, TurnsToTheBackendThatIsFaster) {
  // The first backend's default is the slower one by far, yet its optimum beats the other's best.
  SearchSpace space = triangle();
  space.parts.push_back({"t:b", triangle().parts[0].space, point(7, 0)});
  const auto cost = [](const Candidate& c) {
    const double bowls = *bowl({"t:a", c.config});
    return std::optional(c.backend == "t:a" ? 20 + 3 * bowls : 30 + bowls);  // best 23 (default 62) and 31 (default 44)
  };
  int found = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto strategy = make_strategy(StrategyKind::local, space, seed);
    run(*strategy, cost, 24);  // of 72
    found += strategy->best()->first.backend == "t:a" ? 1 : 0;
  }
  EXPECT_GE(found, 42);
}

TEST(NearestCandidate, TakesTheNearestRatio) {
  const SearchSpace space{{{"t:a",
                            {{{"rows", {8, 16, 64}, ""}, {"ahead", {0, 512, 4096}, ""}, {"extra", {1, 2}, ""}},
                             [](const Config& c) { return c.get("rows") != 8; }},
                            {{{"rows", 16}, {"ahead", 0}, {"extra", 2}}}}},
                          {}};
  const auto near = [&](const Config& config) { return nearest_candidate(space, {"t:a", config}); };
  // 30 is nearer to 16 than to 64 (factors 1.9 and 2.1), 1000 to 512 than to 4096; the axis it lacks is the default's.
  EXPECT_EQ(near({{{"ahead", 1000}, {"rows", 30}}})->config, (Config{{{"rows", 16}, {"ahead", 512}, {"extra", 2}}}));
  EXPECT_EQ(near({{{"rows", 35}, {"ahead", 0}, {"extra", 7}}})->config,
            (Config{{{"rows", 64}, {"ahead", 0}, {"extra", 2}}}));
  EXPECT_FALSE(near({{{"rows", 9}, {"ahead", 0}}}));  // 8 is not admitted
  EXPECT_FALSE(nearest_candidate(space, {"t:b", {}}));
}

TEST(Urn, HandsOutAPermutation) {
  std::mt19937_64 random(5);
  std::array<int, 6> first_of_three{};
  for (int round = 0; round < 6000; ++round) {
    Urn urn(Space{{{"x", {0, 1, 2}, ""}}, {}});
    std::vector<std::int64_t> order;
    while (const auto config = urn.take(random)) order.push_back(config->get("x"));
    ASSERT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 3U);
    ++first_of_three[static_cast<std::size_t>(order[0] * 2 + (order[1] > order[2] ? 1 : 0))];
  }
  // Each of the six orders about 1000 times (standard deviation 29).
  for (const int count : first_of_three) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace moetune
