#include "backend/config.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

Space two_axes() {
  return {{{"threads", {1, 2}, ""}, {"tile", {16, 32, 64}, ""}},
          [](const Config& c) { return c.get("threads") * c.get("tile") <= 64; }};
}

TEST(Space, AllKeepsTheOrderAndTheConstraint) {
  std::vector<std::string> seen;
  for (const auto& config : two_axes().all()) seen.push_back(describe(config));
  EXPECT_EQ(seen, (std::vector<std::string>{"threads=1 tile=16", "threads=1 tile=32", "threads=1 tile=64",
                                            "threads=2 tile=16", "threads=2 tile=32"}));
}

TEST(Space, ContainsChecksNamesValuesAndConstraint) {
  const Space space = two_axes();
  EXPECT_TRUE(space.contains({{{"threads", 2}, {"tile", 32}}}));
  EXPECT_FALSE(space.contains({{{"threads", 2}, {"tile", 64}}}));
  EXPECT_FALSE(space.contains({{{"threads", 3}, {"tile", 16}}}));
  EXPECT_FALSE(space.contains({{{"tile", 16}, {"threads", 2}}}));
  EXPECT_FALSE(space.contains({{{"threads", 2}}}));
}

TEST(Config, JsonRoundTripKeepsOrderAndRefusesOtherThings) {
  const Config config{{{"b", 2}, {"a", -1}}};
  EXPECT_EQ(dump_json(to_json(config)), R"({"b":2,"a":-1})");
  Config back;
  ASSERT_TRUE(from_json(to_json(config), back));
  EXPECT_EQ(back, config);
  EXPECT_FALSE(from_json(Json::parse(R"({"a":1.5})"), back));
  EXPECT_FALSE(from_json(Json::parse("[1]"), back));
}

}  // namespace
}  // namespace moetune
