// The file format, believed in nothing; and folders of such files.
#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>

#include "base/file.h"
#include "model/checkpoint.h"
#include "model/json_events.h"
#include "model/test_safetensors.h"

namespace moetune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<SafetensorsHeader> parse(const std::string& text) { return parse_safetensors(std::as_bytes(std::span(text))); }

/// The message for a file with this header and so many bytes of data; empty where it is accepted.
std::string error_of(const std::string& header, std::size_t data = 0) {
  const auto parsed = parse(safetensors_text(header, std::string(data, '\0')));
  return parsed ? "" : parsed.error().what;
}

TEST(Safetensors, ReadsWhatTheFormatAllows) {
  const auto parsed = parse(safetensors_text(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[1,13]},)"
      R"("a":{"data_offsets":[0,1],"shape":[],"dtype":"U8"},"none":{"dtype":"F32","shape":[0,5],"data_offsets":[13,13]},)"
      R"("packed":{"dtype":"F4","shape":[3,2],"data_offsets":[13,16]}}   )",
      std::string(16, 'x')));
  ASSERT_TRUE(parsed) << parsed.error().what;
  ASSERT_EQ(parsed->tensors.size(), 4U);
  const TensorEntry& b = parsed->tensors.at("b");
  EXPECT_EQ(b.dtype, Dtype::bf16);
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(b.begin, 1U);
  EXPECT_EQ(b.end, 13U);
  EXPECT_TRUE(parsed->tensors.at("a").shape.empty());
  EXPECT_EQ(parsed->tensors.at("packed").end, 16U);
  EXPECT_TRUE(parse(safetensors_text("{}", "")));
}

TEST(Safetensors, RefusesBadLengths) {
  EXPECT_THAT(parse("").error().what, HasSubstr("a file of 0 bytes, too short"));
  EXPECT_THAT(parse("1234567").error().what, HasSubstr("a file of 7 bytes"));
  EXPECT_THAT(parse(std::string("\0\0\0\0\0\0\0\x80{}", 10)).error().what,
              HasSubstr("a header of 9223372036854775808 bytes exceeds the limit of 100000000"));
  EXPECT_THAT(parse(std::string("\x03\0\0\0\0\0\0\0{}", 10)).error().what,
              HasSubstr("a header of 3 bytes does not fit a file of 10"));
  EXPECT_THAT(error_of(""), HasSubstr("does not start with {"));
  EXPECT_THAT(error_of(" {}"), HasSubstr("does not start with {"));
}

TEST(Safetensors, RefusesBadHeaders) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(error_of(tensor("\"U8\"", "[4]", "[0,4]"), 4), "");
  EXPECT_THAT(error_of(tensor("\"U9\"", "[4]", "[0,4]"), 4), HasSubstr("t: dtype U9 is none of BOOL F4"));
  EXPECT_THAT(error_of(tensor("8", "[4]", "[0,4]"), 4), HasSubstr("t: dtype is not text"));
  EXPECT_THAT(error_of(tensor("\"U8\"", "[-4]", "[0,4]"), 4),
              HasSubstr("t: shape holds something else than integers from 0 to 2^63 - 1"));
  EXPECT_THAT(error_of(tensor("\"U8\"", "[4.0]", "[0,4]"), 4), HasSubstr("t: shape holds something else"));
  EXPECT_THAT(error_of(tensor("\"U8\"", "[9223372036854775808]", "[0,4]"), 4), HasSubstr("t: shape holds something"));
  EXPECT_THAT(error_of(tensor("\"U8\"", "4", "[0,4]"), 4), HasSubstr("t: shape is not what belongs there"));
  EXPECT_THAT(error_of(tensor("\"U8\"", "[[4]]", "[0,4]"), 4), HasSubstr("nested deeper than 3 levels"));
  EXPECT_THAT(error_of(tensor("\"U8\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]", "[0,4]"), 4),
              HasSubstr("more than 16 numbers"));
  EXPECT_THAT(error_of(tensor("\"U8\"", "[4]", "[0]"), 4), HasSubstr("t: data_offsets has 1 numbers, not 2"));
  EXPECT_THAT(error_of(tensor("\"U8\"", "[4]", "[0,4],\"shape\":[4]"), 4), HasSubstr("t: shape has two of it"));
  EXPECT_THAT(error_of(tensor("\"U8\"", "[4]", "[0,4],\"x\":1"), 4), HasSubstr("t: x is not a field of a tensor"));
  EXPECT_THAT(error_of(R"({"t":{"dtype":"U8"}})"), HasSubstr("t: the entry lacks dtype, shape or data_offsets"));
  EXPECT_THAT(error_of(R"({"t":5})"), HasSubstr("t: the entry is not what belongs there"));
  EXPECT_THAT(error_of(R"({"t":[]})"), HasSubstr("t: the entry is a list"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":1}})"), HasSubstr("is not text"));
  EXPECT_THAT(error_of(R"({"t":)"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(error_of("{\"t\xff\":1}"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(error_of("{} {}"), HasSubstr("not valid JSON at byte"));
}

TEST(Safetensors, RefusesBadSizes) {
  const auto tensor = [](const std::string& shape, const std::string& offsets) {
    return R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_THAT(error_of(tensor("[4294967296,4294967296]", "[0,4]"), 4),
              HasSubstr("t: F32 [4294967296, 4294967296] is not a whole number of bytes that 64 bits can count"));
  EXPECT_THAT(error_of(tensor("[2]", "[0,4]"), 4), HasSubstr("t: F32 [2] is 8 bytes, but data_offsets [0, 4] hold 4"));
  EXPECT_THAT(error_of(tensor("[1]", "[4,0]"), 4), HasSubstr("t: data_offsets [4, 0] end before they begin"));
  EXPECT_THAT(error_of(tensor("[2]", "[0,8]"), 4), HasSubstr("t: data_offsets end at byte 8 of 4"));
  EXPECT_THAT(error_of(tensor("[1]", "[0,4]"), 5), HasSubstr("1 bytes follow the last tensor"));
  EXPECT_THAT(error_of(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1),
              HasSubstr("t: F4 [3] is not a whole number of bytes"));
}

TEST(Safetensors, RefusesOverlapsHolesAndRepeats) {
  const auto two = [](const std::string& second, const std::string& name) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},")" + name +
           R"(":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(error_of(two("[4,8]", "b"), 8), "");
  EXPECT_THAT(error_of(two("[2,6]", "b"), 6),
              HasSubstr("b: data_offsets [2, 6] overlap another tensor, which ends at byte 4"));
  EXPECT_THAT(error_of(two("[5,9]", "b"), 9),
              HasSubstr("b: data_offsets [5, 9] leave a hole, the tensor before ends at byte 4"));
  EXPECT_THAT(error_of(two("[4,8]", "a"), 8), HasSubstr("a: the entry comes twice"));
}

TEST(Safetensors, RefusesTenMegabytesOfBrackets) {
  EXPECT_THAT(error_of(std::string(10'000'000, '[')), HasSubstr("does not start with {"));
  EXPECT_THAT(error_of("{\"a\":" + std::string(10'000'000, '[')), HasSubstr("a: the entry is a list"));
  EXPECT_THAT(error_of("{\"__metadata__\":{\"a\":" + std::string(10'000'000, '{')), HasSubstr("is an object"));
}

TEST(Safetensors, NamesInMessagesCannotSteerTheTerminal) {
  EXPECT_THAT(error_of(R"({"\u001b[31m":5})"), HasSubstr(R"("\u001b[31m": the entry)"));
  EXPECT_EQ(printable("model.layers.0"), "model.layers.0");
  EXPECT_EQ(printable(""), "\"\"");
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(160, 'x') + "…");
}

/// A small file that is right, cut at every byte and with every byte changed: an answer each time, never anything else.
TEST(Safetensors, EveryTruncationAndEveryWrongByte) {
  TestSafetensors file;
  file.add("model.layers.0.mlp.experts.0.up_proj.weight", "BF16", {2, 4}, std::string(16, '\x01'));
  file.add("b", "F8_E4M3", {3}, "abc");
  const std::string text = file.text();
  ASSERT_TRUE(parse(text));
  for (std::size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(parse(text.substr(0, size))) << size;
  int refused = 0;
  for (std::size_t place = 0; place < text.size() - 19; ++place)
    for (const int byte : {0x00, 0x01, 0x22, 0x5b, 0x7b, 0x39, 0x7f, 0xff}) {
      std::string wrong = text;
      wrong[place] = static_cast<char>(byte);
      const auto parsed = parse(wrong);
      refused += parsed ? 0 : 1;
      if (!parsed) continue;
      for (const auto& [name, tensor] : parsed->tensors) EXPECT_LE(parsed->data_start + tensor.end, wrong.size());
    }
  EXPECT_GT(refused, 500);
}

/// A folder that goes away with the test.
class CheckpointFolder : public testing::Test {
 protected:
  CheckpointFolder()
      : folder_(testing::TempDir() + "moetune_checkpoint_" + std::to_string(::getpid()) + "_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
  }
  ~CheckpointFolder() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) { ASSERT_TRUE(write_file(folder_ + "/" + name, text)); }
  void write_tensor(const std::string& file, const std::string& tensor) {
    TestSafetensors content;
    content.add(tensor, "U8", {4}, "abcd");
    write(file, content.text());
  }
  void write_index(const std::string& map) {
    write("model.safetensors.index.json", R"({"metadata":{"total_size":[4,{}]},"weight_map":)" + map + "}");
  }
  /// The message of opening the folder and finding tensor "a"; "found" or "not there".
  std::string outcome() {
    auto checkpoint = Checkpoint::open(folder_);
    if (!checkpoint) return checkpoint.error().what;
    const auto tensor = checkpoint->find("a");
    if (!tensor) return tensor.error().what;
    return *tensor ? "found" : "not there";
  }

  std::string folder_;
};

TEST_F(CheckpointFolder, OneFile) {
  write_tensor("model.safetensors", "a");
  write("consolidated.safetensors", "another copy, not looked at");
  auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint);
  EXPECT_THAT(checkpoint->names(), ElementsAre("a"));
  EXPECT_TRUE(checkpoint->has("a"));
  EXPECT_FALSE(checkpoint->has("b"));
  const auto tensor = checkpoint->find("a");
  ASSERT_TRUE(tensor && *tensor);
  EXPECT_EQ((*tensor)->dtype, Dtype::u8);
  EXPECT_THAT((*tensor)->shape, ElementsAre(4));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>((*tensor)->bytes.data()), 4), "abcd");
  EXPECT_EQ(*checkpoint->find("b"), std::nullopt);
}

TEST_F(CheckpointFolder, FilesWithoutIndex) {
  write_tensor("part-1.safetensors", "a");
  write_tensor("part-2.safetensors", "b");
  EXPECT_EQ(outcome(), "found");
  write_tensor("part-3.safetensors", "a");
  EXPECT_THAT(outcome(), HasSubstr("part-3.safetensors: a is in"));
}

TEST_F(CheckpointFolder, Index) {
  write_index(R"({"a":"x.safetensors","b":"absent.safetensors"})");
  EXPECT_THAT(outcome(), HasSubstr("x.safetensors: cannot open: No such file"));
  write_tensor("x.safetensors", "a");
  EXPECT_EQ(outcome(), "found");  // the absent file is not missed until it is needed
  write_tensor("x.safetensors", "c");
  EXPECT_THAT(outcome(), HasSubstr("x.safetensors: a is not in it, although the index says so"));
}

TEST_F(CheckpointFolder, IndexThatLeadsOutOfTheFolder) {
  for (const char* file : {"../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..\\\\x.safetensors", "",
                           "x.bin", "..", "x\\u0000.safetensors"}) {
    write_index(std::string(R"({"a":")") + file + "\"}");
    EXPECT_THAT(outcome(), HasSubstr("is not the name of a .safetensors file in this folder")) << file;
  }
}

TEST_F(CheckpointFolder, BadIndex) {
  for (const auto& [map, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{\"a\":\"x.safetensors\",\"a\":\"x.safetensors\"}", "a comes twice"},
           {"{\"a\":5}", "a: its file is not text"},
           {"{\"a\":{}}", "a: its file is not text"},
           {"[]", "weight_map is a list"},
           {"null", "weight_map is not an object"},
           {"{}, \"weight_map\":{}", "two weight_maps"},
           {"[", "weight_map is a list"},
           {"{\"a\":\"x", "not valid JSON at byte"}}) {
    write_index(map);
    EXPECT_THAT(outcome(), HasSubstr(message)) << map;
  }
  write("model.safetensors.index.json", "{}");
  EXPECT_THAT(outcome(), HasSubstr("no weight_map"));
  write("model.safetensors.index.json", "[1]");
  EXPECT_THAT(outcome(), HasSubstr("a list, not an object"));
  write("model.safetensors.index.json", "{\"metadata\":" + std::string(1'000'000, '['));
  EXPECT_THAT(outcome(), HasSubstr("nested deeper than 8 levels"));
}

TEST_F(CheckpointFolder, WhatIsNotAFile) {
  EXPECT_THAT(outcome(), HasSubstr("no safetensors files in this folder"));
  write("model.safetensors", "");
  EXPECT_THAT(outcome(), HasSubstr("model.safetensors: a file of 0 bytes"));
  std::filesystem::remove(folder_ + "/model.safetensors");
  std::filesystem::create_directory(folder_ + "/model.safetensors");
  EXPECT_THAT(outcome(), HasSubstr("model.safetensors: not a regular file"));
  EXPECT_THAT(Checkpoint::open("/nonexistent").error().what, HasSubstr("/nonexistent: no safetensors files"));
}

}  // namespace
}  // namespace moetune
