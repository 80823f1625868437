#include "moe/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "formats/test_fixture.h"
#include "moe/random.h"

namespace moetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Problem make_problem(std::int64_t experts, std::int64_t top_k, Router router = {}) {
  Problem problem;
  problem.experts = problem.experts_global = experts;
  problem.top_k = top_k;
  problem.router = router;
  return problem;
}

/// (expert, weight) of one token, by expert.
std::map<std::int32_t, float> chosen(const Routing& routing, std::int64_t token) {
  std::map<std::int32_t, float> result;
  for (std::int64_t slot = 0; slot < routing.top_k; ++slot) {
    const auto pair = static_cast<std::size_t>(token * routing.top_k + slot);
    result[routing.ids[pair]] = routing.weights[pair];
  }
  return result;
}

TEST(Route, EqualsTheModellingCode) {
  const Json fixture = read_fixture("moe/routing.json");
  ASSERT_EQ(fixture["cases"].size(), 15U);
  for (const Json& json : fixture["cases"]) {
    const auto name = json["name"].get<std::string>();
    Problem problem = make_problem(json["experts"].get<std::int64_t>(), json["top_k"].get<std::int64_t>());
    ASSERT_TRUE(from_json(json["router"], problem.router)) << name;
    const auto tokens = json["tokens"].get<std::int64_t>();
    const auto routing = route(problem, unhex<float>(json["logits"]), tokens, unhex<float>(json["bias"]));
    ASSERT_TRUE(routing) << name << ": " << routing.error().what;
    for (std::int64_t token = 0; token < tokens; ++token) {
      const auto got = chosen(*routing, token);
      ASSERT_EQ(std::ssize(got), problem.top_k) << name;
      std::size_t pair = static_cast<std::size_t>(token * problem.top_k);
      for (const auto& [expert, weight] : got) {
        EXPECT_EQ(expert, json["ids"][pair].get<std::int32_t>()) << name << ", token " << token;
        const auto want = json["weights"][pair].get<double>();
        EXPECT_NEAR(weight, want, 1e-6 * want) << name << ", token " << token;
        ++pair;
      }
    }
  }
}

TEST(Route, ByHand) {
  // Softmax of ln 1, ln 2, ln 3, ln 4 is 0.1, 0.2, 0.3, 0.4.
  const std::vector<float> logits = {0.0F, std::log(2.0F), std::log(3.0F), std::log(4.0F)};
  Problem problem = make_problem(4, 2);
  problem.router.scaling = 7.0;
  const auto normed = route(problem, logits, 1);
  ASSERT_TRUE(normed);
  EXPECT_THAT(normed->ids, ElementsAre(3, 2));  // best first
  EXPECT_NEAR(normed->weights[0], 4.0, 1e-6);
  EXPECT_NEAR(normed->weights[1], 3.0, 1e-6);
  problem.router.renormalize = false;
  const auto raw = route(problem, logits, 1);
  ASSERT_TRUE(raw);
  EXPECT_NEAR(raw->weights[0], 2.8, 1e-6);
  // A bias decides who is chosen; the weight stays the score's.
  const auto biased = route(problem, logits, 1, std::vector<float>{1.0F, 0.0F, 0.0F, 0.0F});
  ASSERT_TRUE(biased);
  EXPECT_THAT(biased->ids, ElementsAre(0, 3));
  EXPECT_NEAR(biased->weights[0], 0.7, 1e-6);
}

TEST(Route, EqualScoresTakeTheLowerExpert) {
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid, RouterScore::sqrt_softplus,
                                  RouterScore::softmax_topk, RouterScore::sigmoid_topk}) {
    Router router;
    router.score = score;
    router.groups = 4;
    router.top_groups = 2;
    const auto routing = route(make_problem(12, 5, router), std::vector<float>(24, 0.5F), 2);
    ASSERT_TRUE(routing);
    EXPECT_THAT(routing->ids, ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4));
  }
}

TEST(Route, GroupScoresDiffer) {
  // Group 0 has the best expert, group 1 the best two together.
  const std::vector<float> logits = {3.0F, -9.0F, -9.0F, 2.0F, 2.0F, -9.0F};
  Router router;
  router.score = RouterScore::sigmoid;
  router.groups = 2;
  const auto by_max = route(make_problem(6, 2, router), logits, 1);
  ASSERT_TRUE(by_max);
  EXPECT_THAT(by_max->ids, ElementsAre(0, 1));
  router.group_score = GroupScore::top2_sum;
  const auto by_sum = route(make_problem(6, 2, router), logits, 1);
  ASSERT_TRUE(by_sum);
  EXPECT_THAT(by_sum->ids, ElementsAre(3, 4));
}

TEST(Route, GroupsOfOneExpert) {
  Router router;
  router.groups = 4;
  router.top_groups = 2;
  router.group_score = GroupScore::top2_sum;
  const auto routing = route(make_problem(4, 2, router), std::vector<float>{1, 4, 2, 3}, 1);
  ASSERT_TRUE(routing);
  EXPECT_THAT(routing->ids, ElementsAre(1, 3));
}

TEST(Route, ExpertParallelismKeepsLocalIdsAndWeights) {
  Problem problem = make_problem(8, 4);
  const std::vector<float> logits = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto whole = route(problem, logits, 1);
  problem.experts = 4;
  problem.first_expert = 4;
  const auto second = route(problem, logits, 1);
  problem.first_expert = 0;
  const auto first = route(problem, logits, 1);
  ASSERT_TRUE(whole && first && second);
  EXPECT_THAT(whole->ids, ElementsAre(7, 6, 5, 4));
  EXPECT_THAT(second->ids, ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(first->ids, ElementsAre(-1, -1, -1, -1));
  EXPECT_EQ(second->weights, whole->weights);
  EXPECT_EQ(first->pairs(), 0);
  EXPECT_EQ(second->pairs(), 4);
  EXPECT_EQ(second->active_experts(), 4);
}

TEST(Route, ExtremeLogitsStayFinite) {
  const float masked = -std::numeric_limits<float>::infinity();
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid, RouterScore::sqrt_softplus,
                                  RouterScore::softmax_topk, RouterScore::sigmoid_topk}) {
    Router router;
    router.score = score;
    const auto routing = route(make_problem(4, 3, router),
                               std::vector<float>{3e38F, -3e38F, masked, 1, -3e38F, masked, masked, -1e5F}, 2);
    ASSERT_TRUE(routing) << to_string(score);
    EXPECT_EQ(routing->ids[0], 0) << to_string(score);
    for (const float weight : routing->weights) EXPECT_TRUE(std::isfinite(weight)) << to_string(score);
  }
}

TEST(Route, RefusesHostileInput) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  const auto what = [](const Problem& problem, std::vector<float> logits, std::int64_t tokens,
                       std::vector<float> bias = {}) {
    const auto routing = route(problem, logits, tokens, bias);
    return routing ? std::string("no error") : routing.error().what;
  };
  const Problem two = make_problem(2, 1);
  EXPECT_THAT(what(two, {0, 0, 1, nan}, 2), HasSubstr("token 1, expert 1 is nan"));
  EXPECT_THAT(what(two, {infinity, 0}, 1), HasSubstr("expert 0 is inf"));
  EXPECT_THAT(what(two, {-infinity, -infinity}, 1), HasSubstr("every router logit of token 0"));
  EXPECT_THAT(what(two, {0, 0, 0}, 1), HasSubstr("3 logits are not 1 tokens of 2 experts"));
  EXPECT_THAT(what(two, {0, 0}, -1), HasSubstr("2 logits"));
  EXPECT_THAT(what(two, {0, 0}, 1, {1}), HasSubstr("1 correction biases for 2 experts"));
  EXPECT_THAT(what(two, {0, 0}, 1, {1, nan}), HasSubstr("bias of expert 1 is nan"));
  EXPECT_THAT(what(make_problem(2, 3), {0, 0}, 1), HasSubstr("top-k 3 of 2 experts"));
  EXPECT_THAT(what(make_problem(0, 1), {}, 0), HasSubstr("of 0 experts"));
  EXPECT_THAT(what(make_problem(-4, -5), {}, 0), HasSubstr("top-k -5"));
  Router router;
  router.score = RouterScore::sparsemixer;
  EXPECT_THAT(what(make_problem(2, 1, router), {0, 0}, 1), HasSubstr("sparsemixer"));
  router = {};
  router.groups = 3;
  EXPECT_THAT(what(make_problem(4, 1, router), {0, 0, 0, 0}, 1), HasSubstr("4 experts do not divide into 3 groups"));
  router.groups = 0;
  EXPECT_THAT(what(make_problem(4, 1, router), {0, 0, 0, 0}, 1), HasSubstr("0 groups"));
  router.groups = 2;
  router.top_groups = 3;
  EXPECT_THAT(what(make_problem(4, 1, router), {0, 0, 0, 0}, 1), HasSubstr("best 3 of 2"));
  router.top_groups = 1;
  EXPECT_THAT(what(make_problem(4, 3, router), {0, 0, 0, 0}, 1), HasSubstr("top-k 3 from 1 groups of 2"));
}

TEST(Route, NoTokens) {
  const auto routing = route(make_problem(4, 2), {}, 0);
  ASSERT_TRUE(routing);
  EXPECT_TRUE(routing->ids.empty());
  EXPECT_EQ(routing->active_experts(), 0);
}

// -------------------------------------------------------------------------------------------------------------- random

constexpr RoutingKind kKinds[] = {RoutingKind::uniform, RoutingKind::power_law, RoutingKind::one_hot,
                                  RoutingKind::round_robin};

TEST(SplitMix64, EqualsThePublishedSequence) {
  // The first outputs for seed 1234567, as listed with the public C implementation (prng.di.unimi.it/splitmix64.c).
  SplitMix64 random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317U);
  EXPECT_EQ(random.next(), 3203168211198807973U);
  EXPECT_EQ(random.next(), 9817491932198370423U);
  EXPECT_EQ(random.next(), 4593380528125082431U);
  EXPECT_EQ(random.next(), 16408922859458223821U);
}

TEST(SplitMix64, BelowIsInRangeAndFair) {
  SplitMix64 random(5);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[random.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);  // five standard deviations of 93
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.below(1), 0U);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(random.below(0xffffffffU), 0xffffffffU);
}

TEST(RandomRouting, ExpertsAreDistinctAndWeightsSumToTheScaling) {
  Router router;
  router.scaling = 2.5;
  for (const RoutingKind kind : kKinds)
    for (const auto& [experts, top_k] : {std::pair{1, 1}, {8, 8}, {128, 8}, {5, 3}}) {
      const Routing routing = random_routing(make_problem(experts, top_k, router), 50, kind, 9);
      ASSERT_EQ(routing.tokens, 50);
      for (std::int64_t token = 0; token < 50; ++token) {
        const auto one = chosen(routing, token);
        ASSERT_EQ(std::ssize(one), top_k) << to_string(kind) << ", token " << token;
        double sum = 0;
        for (const auto& [expert, weight] : one) {
          EXPECT_GE(expert, 0);
          EXPECT_LT(expert, experts);
          EXPECT_GT(weight, 0.0F);
          sum += static_cast<double>(weight);
        }
        EXPECT_NEAR(sum, 2.5, 1e-5);
      }
    }
}

TEST(RandomRouting, SeedDecidesAndLongerCallsBeginTheSame) {
  const Problem problem = make_problem(64, 6);
  for (const RoutingKind kind : kKinds) {
    const Routing a = random_routing(problem, 40, kind, 1);
    const Routing again = random_routing(problem, 40, kind, 1);
    EXPECT_EQ(a.ids, again.ids);
    EXPECT_EQ(a.weights, again.weights);
    EXPECT_NE(a.ids, random_routing(problem, 40, kind, 5).ids) << to_string(kind);
    const Routing shorter = random_routing(problem, 7, kind, 1);
    EXPECT_TRUE(std::equal(shorter.ids.begin(), shorter.ids.end(), a.ids.begin())) << to_string(kind);
    EXPECT_TRUE(std::equal(shorter.weights.begin(), shorter.weights.end(), a.weights.begin())) << to_string(kind);
  }
}

/// Tokens of each expert, most first.
std::vector<int> loads(const Routing& routing, std::int64_t experts) {
  std::vector<int> counts(static_cast<std::size_t>(experts));
  for (const std::int32_t id : routing.ids) ++counts[static_cast<std::size_t>(id)];
  std::sort(counts.rbegin(), counts.rend());
  return counts;
}

TEST(RandomRouting, KindsSpreadAsTheySay) {
  const Problem problem = make_problem(32, 4);
  const auto uniform = loads(random_routing(problem, 8000, RoutingKind::uniform, 3), 32);
  EXPECT_LT(uniform.front(), 1000 + 160);  // five standard deviations of 30, and some for the maximum of 32
  EXPECT_GT(uniform.back(), 1000 - 160);

  const auto even = loads(random_routing(problem, 80, RoutingKind::round_robin, 3), 32);
  EXPECT_EQ(even.front(), 10);
  EXPECT_EQ(even.back(), 10);

  const auto hot = loads(random_routing(problem, 310, RoutingKind::one_hot, 3), 32);
  EXPECT_EQ(hot[0], 310);
  EXPECT_LT(hot[1], 60);  // 30 expected

  // top-1 draws are in proportion to rank^-1.2 exactly: the second has 2^-1.2 = 0.435 of the first.
  const auto skewed = loads(random_routing(make_problem(32, 1), 20000, RoutingKind::power_law, 3), 32);
  double total = 0;
  for (int rank = 1; rank <= 32; ++rank) total += std::pow(rank, -1.2);
  for (int rank = 1; rank <= 8; ++rank) {
    const double expected = 20000 * std::pow(rank, -1.2) / total;
    EXPECT_NEAR(skewed[static_cast<std::size_t>(rank - 1)], expected, 6 * std::sqrt(expected)) << rank;
  }
}

TEST(RandomRouting, PinnedOnEveryMachine) {
  // Worked out by a separate implementation of the same draws in Python.
  const Problem problem = make_problem(16, 3);
  EXPECT_THAT(random_routing(problem, 2, RoutingKind::uniform, 42).ids, ElementsAre(4, 6, 2, 5, 10, 0));
  EXPECT_THAT(random_routing(problem, 2, RoutingKind::power_law, 42).ids, ElementsAre(2, 6, 14, 1, 4, 12));
  EXPECT_THAT(random_routing(problem, 2, RoutingKind::one_hot, 42).ids, ElementsAre(11, 5, 6, 11, 13, 2));
  EXPECT_THAT(random_routing(problem, 2, RoutingKind::round_robin, 42).ids, ElementsAre(2, 3, 4, 5, 6, 7));
}

TEST(RandomRouting, ExpertParallelism) {
  Problem problem = make_problem(32, 4);
  problem.experts = 8;
  problem.first_expert = 16;
  for (const RoutingKind kind : kKinds) {
    const Routing routing = random_routing(problem, 400, kind, 4);
    for (const std::int32_t id : routing.ids) {
      EXPECT_GE(id, -1);
      EXPECT_LT(id, 8);
    }
    EXPECT_GT(routing.pairs(), 0);
    EXPECT_LT(routing.pairs(), 1600);
    EXPECT_LE(routing.active_experts(), 8);
  }
  const Routing hot = random_routing(problem, 400, RoutingKind::one_hot, 4);
  EXPECT_TRUE(std::any_of(hot.ids.begin(), hot.ids.begin() + 4, [](std::int32_t id) { return id >= 0; }));
}

TEST(RandomRouting, NoChoiceNoTokens) {
  for (const Problem& problem : {make_problem(4, 5), make_problem(0, 0), make_problem(0, 1), make_problem(4, -1)})
    for (const RoutingKind kind : kKinds) EXPECT_EQ(random_routing(problem, 3, kind, 1).tokens, 0);
  EXPECT_EQ(random_routing(make_problem(4, 2), -3, RoutingKind::uniform, 1).tokens, 0);
  EXPECT_TRUE(hostile_routings(make_problem(0, 1), 1).empty());
}

TEST(HostileRoutings, AreWellFormedAndDiffer) {
  for (const auto& [experts, top_k] : {std::pair{1, 1}, {8, 2}, {128, 8}, {3, 3}}) {
    const Problem problem = make_problem(experts, top_k);
    const auto all = hostile_routings(problem, 1);
    EXPECT_GE(all.size(), 12U);
    std::set<std::string_view> names;
    for (const auto& [name, routing] : all) {
      names.insert(name);
      EXPECT_GT(routing.tokens, 0) << name;
      EXPECT_EQ(routing.top_k, top_k) << name;
      ASSERT_EQ(std::ssize(routing.ids), routing.tokens * top_k) << name;
      ASSERT_EQ(routing.ids.size(), routing.weights.size()) << name;
      for (const std::int32_t id : routing.ids) EXPECT_TRUE(id >= -1 && id < experts) << name << ": " << id;
      for (const float weight : routing.weights) EXPECT_TRUE(std::isfinite(weight) && weight >= 0) << name;
    }
    EXPECT_EQ(names.size(), all.size());
  }
}

TEST(HostileRoutings, HoldWhatTheirNamesSay) {
  std::map<std::string_view, Routing> all;
  for (auto& [name, routing] : hostile_routings(make_problem(8, 2), 1)) all[name] = routing;
  EXPECT_EQ(all.at("every pair is another device's").pairs(), 0);
  EXPECT_EQ(all.at("all tokens to the last expert").active_experts(), 1);
  EXPECT_EQ(all.at("all tokens to the last expert").ids[0], 7);
  EXPECT_EQ(all.at("one expert in every slot").ids[2], all.at("one expert in every slot").ids[3]);
  EXPECT_EQ(all.at("every expert has one token").active_experts(), 8);
  EXPECT_EQ(all.at("every expert has one token").pairs(), 8);
  EXPECT_EQ(all.at("only the last token has experts here").pairs(), 2);
  const auto& zero = all.at("weights of zero").weights;
  EXPECT_EQ(std::accumulate(zero.begin(), zero.end(), 0.0F), 0.0F);
}

}  // namespace
}  // namespace moetune
