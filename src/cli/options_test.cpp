#include "cli/options.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

using Tokens = std::vector<std::int64_t>;

TEST(Options, Tokens) {
  EXPECT_EQ(parse_tokens("1,16,256").value(), (Tokens{1, 16, 256}));
  EXPECT_EQ(parse_tokens("1-64").value(), (Tokens{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(parse_tokens("3-20,0,3").value(), (Tokens{3, 6, 12, 0}));
  for (const char* bad : {"", ",", "1,", "-1", "1e3", "0-8", "8-1", "1048577", "99999999999999999999", "1 2", "abc"})
    EXPECT_FALSE(parse_tokens(bad)) << bad;
  EXPECT_FALSE(parse_tokens(
      "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,17,18,19,21,22,23,25,26,27,28,29,30,31,33,34,35,36,37,38,39,41,42,"
      "43,44,45,46,47,49,50,51,52,53,54,55,57,58,59,60,61,62,63,65,66,67,68,69,70,71,72,73,74,75,76,77"));
}

TEST(Options, Budget) {
  EXPECT_EQ(parse_budget("10m").value(), (Budget{600.0, std::nullopt}));
  EXPECT_EQ(parse_budget("1.5h").value(), (Budget{5400.0, std::nullopt}));
  EXPECT_EQ(parse_budget("250ms").value(), (Budget{0.25, std::nullopt}));
  EXPECT_EQ(parse_budget("200").value(), (Budget{std::nullopt, 200}));
  EXPECT_EQ(parse_budget("0").value(), (Budget{std::nullopt, 0}));
  for (const char* bad : {"", "m", "-5", "-5s", "nans", "infs", "1d", "10 m", "1e9h"})
    EXPECT_FALSE(parse_budget(bad)) << bad;
}

}  // namespace
}  // namespace moetune
