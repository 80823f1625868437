#include "worker/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace moetune {
namespace {

Problem small() {
  Problem p;
  p.experts = p.experts_global = 16;
  p.top_k = 2;
  p.hidden = 8;
  p.intermediate = 8;
  return p;
}

TEST(Traffic, ConsecutiveCallsTouchOtherExperts) {
  const Traffic traffic = Traffic::make(small(), {1, RoutingKind::uniform, 5}, 0);
  ASSERT_EQ(traffic.routings().size(), 8U);  // 16 experts, two a call
  std::vector<std::int32_t> seen;
  for (const auto& routing : traffic.routings()) {
    ASSERT_EQ(routing.ids.size(), 2U);
    for (const auto id : routing.ids) {
      EXPECT_EQ(std::count(seen.begin(), seen.end(), id), 0) << "expert " << id << " twice before all were touched";
      seen.push_back(id);
    }
  }
  EXPECT_EQ(seen.size(), 16U);
  EXPECT_FALSE(std::is_sorted(seen.begin(), seen.end())) << "a call's experts lie side by side in memory";
  EXPECT_DOUBLE_EQ(traffic.mean_active_experts(), 2);
  EXPECT_DOUBLE_EQ(traffic.mean_pairs(), 2);
}

TEST(Traffic, GoesOnUntilTheCacheIsPassedTwice) {
  Problem p = small();
  p.experts = p.experts_global = 4096;
  p.top_k = 1;
  const auto calls = [&](std::int64_t cache_bytes) {
    return std::ssize(Traffic::make(p, {1, RoutingKind::uniform, 1}, cache_bytes).routings());
  };
  EXPECT_EQ(calls(0), 64);
  const std::int64_t call_bytes = expert_bytes(p);
  EXPECT_EQ(calls(100 * call_bytes), 201);
  EXPECT_EQ(calls(std::int64_t{1} << 40), 1024);
}

TEST(Traffic, RenamingKeepsWhoSharesAnExpert) {
  const Problem p = small();
  const Routing plain = random_routing(p, 6, RoutingKind::one_hot, 9);
  const Traffic traffic = Traffic::make(p, {6, RoutingKind::one_hot, 9}, 0);
  const Routing& renamed = traffic.routings().front();
  for (std::size_t i = 0; i < plain.ids.size(); ++i)
    for (std::size_t j = 0; j < plain.ids.size(); ++j)
      EXPECT_EQ(plain.ids[i] == plain.ids[j], renamed.ids[i] == renamed.ids[j]);
  EXPECT_EQ(plain.weights, renamed.weights);
}

TEST(Traffic, OtherDevicesPairsStayTheirs) {
  Problem p = small();
  p.experts = 4;
  p.first_expert = 8;
  const Routing plain = random_routing(p, 5, RoutingKind::uniform, 3);
  const Traffic traffic = Traffic::make(p, {5, RoutingKind::uniform, 3}, 0);
  const Routing& renamed = traffic.routings().front();
  for (std::size_t i = 0; i < plain.ids.size(); ++i) EXPECT_EQ(plain.ids[i] < 0, renamed.ids[i] < 0);
  EXPECT_LT(traffic.mean_pairs(), 10);
}

TEST(Traffic, IsTheSameForTheSameSeed) {
  const Traffic a = Traffic::make(small(), {3, RoutingKind::uniform, 1}, 0);
  const Traffic b = Traffic::make(small(), {3, RoutingKind::uniform, 1}, 0);
  EXPECT_TRUE(std::equal(a.inputs().begin(), a.inputs().end(), b.inputs().begin(), b.inputs().end()));
  EXPECT_EQ(a.routings().back().ids, b.routings().back().ids);
  EXPECT_NE(a.inputs()[0], a.inputs()[1]);
}

TEST(Traffic, KnowsWhatWasWrittenBesideTheOutput) {
  Traffic traffic = Traffic::make(small(), {3, RoutingKind::uniform, 1}, 0);
  traffic.poison();
  const Call call = traffic.calls().front();
  ASSERT_EQ(call.output.size(), 24U);
  EXPECT_TRUE(std::all_of(call.output.begin(), call.output.end(), Traffic::is_poison));
  std::fill(call.output.begin(), call.output.end(), std::uint16_t{0});
  EXPECT_EQ(traffic.stray_writes(), 0);
  *(call.output.data() + 24) = 1;
  *(call.output.data() - 8) = 1;
  EXPECT_EQ(traffic.stray_writes(), 2);
  traffic.poison();
  EXPECT_EQ(traffic.stray_writes(), 0);
}

}  // namespace
}  // namespace moetune
