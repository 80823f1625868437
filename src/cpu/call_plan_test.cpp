#include "cpu/call_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace moetune {
namespace {

Problem small_problem() {
  Problem problem;
  problem.experts = problem.experts_global = 4;
  problem.top_k = 2;
  problem.hidden = 8;
  problem.intermediate = 8;
  return problem;
}

/// A call that owns its parts.
struct TestCall {
  explicit TestCall(Routing chosen) : routing(std::move(chosen)) {
    input.resize(static_cast<std::size_t>(routing.tokens) * 8);
    output.resize(input.size());
  }
  [[nodiscard]] Call view() { return {input, &routing, output}; }

  Routing routing;
  std::vector<std::uint16_t> input, output;
};

TEST(CallPlan, GroupsPairsByExpertInTokenOrder) {
  CallPlan plan(small_problem(), 3);
  TestCall call({3, 2, {2, 0, -1, 2, 2, 2}, {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F}});
  ASSERT_TRUE(plan.build(call.view()));
  EXPECT_EQ(plan.tokens(), 3);
  ASSERT_EQ(plan.experts().size(), 2U);
  EXPECT_EQ(plan.experts()[0].expert, 0);
  EXPECT_EQ(plan.experts()[0].pairs, 1);
  EXPECT_EQ(plan.experts()[1].expert, 2);
  EXPECT_EQ(plan.experts()[1].first, 1);
  EXPECT_EQ(plan.experts()[1].pairs, 4);
  EXPECT_EQ(std::vector<std::int32_t>(plan.token().begin(), plan.token().end()),
            (std::vector<std::int32_t>{0, 0, 1, 2, 2}));
  EXPECT_EQ(std::vector<float>(plan.weight().begin(), plan.weight().end()),
            (std::vector<float>{0.2F, 0.1F, 0.4F, 0.5F, 0.6F}));
}

TEST(CallPlan, NothingFromAnEmptyCallAfterAFullOne) {
  CallPlan plan(small_problem(), 2);
  TestCall full({2, 2, {0, 1, 2, 3}, {1, 1, 1, 1}}), none({2, 2, {-1, -1, -1, -1}, {1, 1, 1, 1}}),
      empty({0, 2, {}, {}});
  ASSERT_TRUE(plan.build(full.view()));
  EXPECT_EQ(plan.pairs(), 4);
  ASSERT_TRUE(plan.build(none.view()));
  EXPECT_EQ(plan.pairs(), 0);
  EXPECT_TRUE(plan.experts().empty());
  ASSERT_TRUE(plan.build(empty.view()));
  EXPECT_EQ(plan.tokens(), 0);
}

TEST(CallPlan, RefusesWhatDoesNotFit) {
  CallPlan plan(small_problem(), 2);
  const std::vector<std::pair<Routing, std::string>> bad = {
      {{3, 2, {0, 1, 0, 1, 0, 1}, {1, 1, 1, 1, 1, 1}}, "3 tokens"},
      {{1, 2, {0, 4}, {1, 1}}, "expert 4"},
      {{1, 2, {0, -2}, {1, 1}}, "expert -2"},
      {{1, 2, {0}, {1, 1}}, "1 ids"},
      {{1, 2, {0, 1}, {1}}, "1 weights"},
      {{1, 9, {0, 1, 2, 3, 0, 1, 2, 3, 0}, {1, 1, 1, 1, 1, 1, 1, 1, 1}}, "9 pairs"},
  };
  for (const auto& [routing, message] : bad) {
    TestCall call(routing);
    const auto status = plan.build(call.view());
    ASSERT_FALSE(status) << message;
    EXPECT_NE(status.error().what.find(message), std::string::npos) << status.error().what;
  }
  TestCall cut({1, 2, {0, 1}, {1, 1}});
  cut.output.pop_back();
  EXPECT_FALSE(plan.build(cut.view()));
  EXPECT_FALSE(plan.build(Call{}));
}

}  // namespace
}  // namespace moetune
