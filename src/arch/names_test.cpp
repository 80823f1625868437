#include "arch/names.h"

#include <gmock/gmock.h>

#include <random>

namespace moetune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NameKey, IgnoresCaseBlanksAndTheMaker) {
  EXPECT_EQ(name_key("NVIDIA GeForce RTX 5090"), "rtx5090");
  EXPECT_EQ(name_key("geforce_rtx-5090"), "rtx5090");
  EXPECT_EQ(name_key("nvidia_H200_NVL"), "h200nvl");
  EXPECT_EQ(name_key("\tH200 - NVL "), "h200nvl");
  EXPECT_EQ(name_key("12.0"), "12.0");
  EXPECT_EQ(name_key(" NVIDIA "), "");
  EXPECT_EQ(name_key("GeForce NVIDIA RTX"), "nvidiartx");  // only a leading pair in the maker's own order
  EXPECT_EQ(name_key("\xff\xc3\x84"), "\xff\xc3\x84");
}

TEST(EditDistance, CountsInsertedRemovedAndReplacedBytes) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);  // the textbook's example
  EXPECT_EQ(edit_distance("intention", "execution"), 5u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("same", "same"), 0u);
}

TEST(EditDistance, IsAMetric) {
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text(random() % 9, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string a = word(), b = word(), c = word();
    const auto ab = edit_distance(a, b);
    EXPECT_EQ(ab, edit_distance(b, a));
    EXPECT_EQ(ab == 0, a == b);
    EXPECT_LE(edit_distance(a, c), ab + edit_distance(b, c));
    EXPECT_LE(ab, std::max(a.size(), b.size()));
  }
}

TEST(NearestNames, ContainingNamesFirstThenFewestEdits) {
  const std::vector<std::string> known = {"RTX 5090", "RTX 5080", "RTX 4090", "H100 NVL", "H100 PCIe", "h100-nvl"};
  EXPECT_THAT(nearest_names("RTX 5091", known, 2), ElementsAre("RTX 5090", "RTX 4090"));
  EXPECT_THAT(nearest_names("h100", known, 9), ElementsAre("H100 NVL", "H100 PCIe"));
  EXPECT_THAT(nearest_names("zzzzzzzz", known, 9), IsEmpty());
  EXPECT_THAT(nearest_names("", known, 9), IsEmpty());
  EXPECT_THAT(nearest_names(std::string(100000, 'R'), known, 9), IsEmpty());
}

TEST(QuotedName, IsShortAndPrintable) {
  EXPECT_EQ(quoted_name("H100"), "'H100'");
  EXPECT_EQ(quoted_name("\x1b[2J\xff"), "'\\x1b[2J\\xff'");
  EXPECT_EQ(quoted_name(std::string(10000, 'a')), "'" + std::string(60, 'a') + "…'");
}

}  // namespace
}  // namespace moetune
