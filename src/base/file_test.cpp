#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace moetune {
namespace {

using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "moetune_file_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(FileTest, WritesWholeAndReadsBack) {
  const std::string path = folder_ + "/a/b/c.txt";
  ASSERT_TRUE(write_file(path, "one"));
  ASSERT_TRUE(write_file(path, std::string(100'000, 'x')));
  const auto text = read_file(path, 1 << 20);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, std::string(100'000, 'x'));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/a/b"), {}), 1) << "a temporary file was left";
}

TEST_F(FileTest, TooLargeIsAnErrorWithTheNumbers) {
  ASSERT_TRUE(write_file(folder_ + "/f", "12345"));
  const auto text = read_file(folder_ + "/f", 4);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().what, HasSubstr("5 bytes exceed the limit of 4"));
}

TEST_F(FileTest, OnlyRegularFiles) {
  ASSERT_EQ(::mkfifo((folder_ + "/fifo").c_str(), 0600), 0);
  for (const auto& path : {folder_, folder_ + "/fifo"}) {
    const auto text = read_file(path, 10);
    ASSERT_FALSE(text);
    EXPECT_THAT(text.error().what, HasSubstr("not a regular file"));
    EXPECT_FALSE(MappedFile::open(path));
  }
  const auto absent = read_file(folder_ + "/absent", 10);
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().what, HasSubstr("No such file"));
}

TEST_F(FileTest, MapsTheBytes) {
  ASSERT_TRUE(write_file(folder_ + "/f", "abc"));
  ASSERT_TRUE(write_file(folder_ + "/empty", ""));
  auto map = MappedFile::open(folder_ + "/f");
  ASSERT_TRUE(map);
  const MappedFile moved = std::move(*map);
  ASSERT_EQ(moved.bytes().size(), 3U);
  EXPECT_EQ(std::to_integer<char>(moved.bytes()[2]), 'c');
  const auto empty = MappedFile::open(folder_ + "/empty");
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->bytes().empty());
}

}  // namespace
}  // namespace moetune
