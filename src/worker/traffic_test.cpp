#include "worker/traffic.h"

#include <gtest/gtest.h>

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
  Traffic traffic = make_traffic(small(), {1, RoutingKind::uniform, 5});
  ASSERT_EQ(traffic.routings.size(), 8U);  // 16 experts, two a call
  std::set<std::int32_t> seen;
  for (const auto& routing : traffic.routings) {
    ASSERT_EQ(routing.ids.size(), 2U);
    for (const auto id : routing.ids)
      EXPECT_TRUE(seen.insert(id).second) << "expert " << id << " twice before all were touched";
  }
  EXPECT_EQ(seen.size(), 16U);
  EXPECT_DOUBLE_EQ(traffic.mean_active_experts(), 2);
  EXPECT_DOUBLE_EQ(traffic.mean_pairs(), 2);
}

TEST(Traffic, RenamingKeepsWhoSharesAnExpert) {
  const Problem p = small();
  const Routing plain = random_routing(p, 6, RoutingKind::one_hot, 9);
  const Traffic traffic = make_traffic(p, {6, RoutingKind::one_hot, 9});
  const Routing& renamed = traffic.routings.front();
  for (std::size_t i = 0; i < plain.ids.size(); ++i)
    for (std::size_t j = 0; j < plain.ids.size(); ++j)
      EXPECT_EQ(plain.ids[i] == plain.ids[j], renamed.ids[i] == renamed.ids[j]);
  EXPECT_EQ(plain.weights, renamed.weights);
}

TEST(Traffic, IsTheSameForTheSameSeed) {
  const Traffic a = make_traffic(small(), {3, RoutingKind::uniform, 1});
  const Traffic b = make_traffic(small(), {3, RoutingKind::uniform, 1});
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.routings.back().ids, b.routings.back().ids);
  EXPECT_NE(a.inputs[0], a.inputs[1]);
}

}  // namespace
}  // namespace moetune
