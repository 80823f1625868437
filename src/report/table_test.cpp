#include "report/table.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

TEST(Table, AlignsAndWrapsTheLastColumn) {
  Table table({{"id"}, {"us", Table::Align::right}, {"why"}});
  table.row({"a", "1", "short"});
  table.row({"longer", "1234", "the words of this cell do not fit into one line"});
  EXPECT_EQ(table.str(44),
            "id        us  why\n"
            "a          1  short\n"
            "longer  1234  the words of this cell do not\n"
            "              fit into one line\n");
  EXPECT_EQ(Table({{"nothing"}}).str(), "");
}

TEST(Table, TerminalEscapesAndBadUtf8DoNotGetThrough) {
  EXPECT_EQ(for_terminal("a\x1b[31mb\n\xff\xc3\xa9\xc2\x9b\xed\xa0\x80"), "a [31mb ?\xc3\xa9 ???");
  EXPECT_EQ(display_width("\xc3\xa9\xe2\x82\xac"), 2U);
}

TEST(Show, PicksTheUnit) {
  EXPECT_EQ(show_bytes(1'234'000'000), "1.2 GB");
  EXPECT_EQ(show_bytes(345'600'000), "346 MB");
  EXPECT_EQ(show_bytes(12), "12 B");
  EXPECT_EQ(show_us(950.4), "950 us");
  EXPECT_EQ(show_us(12'345), "12.35 ms");
  EXPECT_EQ(show_us(2'500'000), "2.50 s");
  EXPECT_EQ(show_seconds(59.6), "1 min 0 s");
  EXPECT_EQ(show_seconds(7265), "2 h 1 min");
}

}  // namespace
}  // namespace moetune
