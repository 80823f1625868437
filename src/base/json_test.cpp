#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/reason.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

TEST(Json, ReasonRoundTrips) {
  const Reason reason{ReasonCode::shared_memory, "131,072 bytes", "at most 101,376", "use a smaller tile", "archs.md"};
  const Json json = to_json(reason);
  EXPECT_EQ(dump_json(json), R"({"code":"shared_memory","have":"131,072 bytes","need":"at most 101,376",)"
                             R"("hint":"use a smaller tile","source":"archs.md"})");
  Reason back;
  ASSERT_TRUE(from_json(json, back));
  EXPECT_EQ(back, reason);
}

TEST(Json, NestingIsBounded) {
  const auto json = parse_json(std::string(10'000'000, '['));
  ASSERT_FALSE(json);
  EXPECT_THAT(json.error().what, HasSubstr("nested deeper than 64 levels at byte 64"));
}

TEST(Json, BracketsInStringsDoNotNest) {
  const auto json = parse_json("{\"a\": \"" + std::string(1000, '[') + "\\\"\"}");
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["a"].get<std::string>(), std::string(1000, '[') + "\"");
}

TEST(Json, SyntaxErrorIsOneLine) {
  for (const char* text : {"", "{", "{\"a\":}", "\xff\xfe", "{\"a\":1}x", "nul"}) {
    const auto json = parse_json(text);
    ASSERT_FALSE(json) << text;
    EXPECT_THAT(json.error().what, HasSubstr("not valid JSON"));
    EXPECT_EQ(json.error().what.find('\n'), std::string::npos);
  }
}

TEST(Json, OfRepeatedKeysTheLastWins) {
  const auto json = parse_json(R"({"a":1,"b":{"x":1,"x":[2],"y":3},"a":{"c":4},"d":5,"a":6})");
  ASSERT_TRUE(json);
  EXPECT_EQ(dump_json(*json), R"({"a":6,"b":{"x":[2],"y":3},"d":5})");
}

TEST(Json, ManyKeysAreReadInLinearTime) {
  std::string text = "{\"\":0";
  for (int i = 0; i < 500'000; ++i) text += ",\"" + std::to_string(i) + "\":" + std::to_string(i);
  const auto json = parse_json(text + "}");  // a search through the keys at each of them would take minutes
  ASSERT_TRUE(json);
  EXPECT_EQ(json->size(), 500'001U);
  EXPECT_EQ(json->back().get<int>(), 499'999);
}

TEST(Json, NonFiniteNumbersOfPythonAreNull) {
  const auto json = parse_json(R"({"limit":[0.0,Infinity,-Infinity],"NaN":NaN,"text":"\"NaN\\","x":[ Infinity ]})");
  ASSERT_TRUE(json) << json.error().what;
  EXPECT_EQ(dump_json(*json), R"({"limit":[0.0,null,null],"NaN":null,"text":"\"NaN\\","x":[null]})");
  for (const char* text : {"Infinit", "[Nan]", "[--Infinity]", "{NaN:1}", "[1Infinity]", "\"NaN\\"})
    EXPECT_FALSE(parse_json(text)) << text;
}

TEST(Json, BuildsWhatTheLibraryBuilds) {
  for (const char* text : {"5", "-5", "1e3", "\"x\"", "null", "true", "[]", "{}", "[[],{},[1,[2,{\"a\":[3]}]],-0.5]",
                           R"({"a":{"b":[{"c":null},18446744073709551615,"\u00e4\n"]},"":{}})"}) {
    const auto json = parse_json(text);
    ASSERT_TRUE(json) << text;
    EXPECT_EQ(*json, Json::parse(text)) << text;
  }
}

TEST(Json, IntegersAreChecked) {
  std::int32_t small = 7;
  EXPECT_FALSE(from_json(Json(std::uint64_t{1} << 63), small));
  EXPECT_FALSE(from_json(Json(std::int64_t{1} << 31), small));
  EXPECT_FALSE(from_json(Json(-(std::int64_t{1} << 40)), small));
  EXPECT_FALSE(from_json(Json(1.5), small));
  EXPECT_FALSE(from_json(Json("1"), small));
  EXPECT_FALSE(from_json(Json(true), small));
  EXPECT_EQ(small, 7);
  EXPECT_TRUE(from_json(Json(2147483647), small));
  EXPECT_EQ(small, 2147483647);
}

TEST(Json, ErrorNamesTheField) {
  Reason reason;
  const auto status = from_json(Json{{"code", "archh"}}, reason);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().what, R"(code: expected a known name, found "archh")");
}

TEST(Json, NonFiniteIsNullAndBadUtf8IsReplaced) {
  EXPECT_EQ(dump_json(Json(std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xef\xbf\xbd\"");
}

TEST(Json, ContentHashIsXxh3OfTheBytes) {
  // From `printf '' | xxhsum -H2` and `printf abc | xxhsum -H2` of the xxhash package.
  EXPECT_EQ(content_hash(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(content_hash("abc"), "06b05ab6733a618578af5f94892f3950");
}

}  // namespace
}  // namespace moetune
