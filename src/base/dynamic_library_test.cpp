#include "base/dynamic_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace moetune {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(DynamicLibrary, OpensTheFirstCandidateThatExists) {
  const std::array<std::string, 3> candidates = {"libthere-is-none.so.7", "libm.so.6", "libc.so.6"};
  auto library = DynamicLibrary::open(candidates);
  ASSERT_TRUE(library) << library.error().what;
  EXPECT_EQ(library->name(), "libm.so.6");
  EXPECT_THAT(library->path(), EndsWith("libm.so.6"));
  const auto cosine = library->symbol<double (*)(double)>("cos");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.5), std::cos(0.5));
}

TEST(DynamicLibrary, AnAbsentSymbolIsNull) {
  const std::array<std::string, 1> candidates = {"libm.so.6"};
  const auto library = DynamicLibrary::open(candidates);
  ASSERT_TRUE(library);
  EXPECT_EQ(library->symbol<void (*)()>("moetune_no_such_function"), nullptr);
}

TEST(DynamicLibrary, StaysUsableWhenMoved) {
  const std::array<std::string, 1> candidates = {"libm.so.6"};
  auto first = DynamicLibrary::open(candidates);
  ASSERT_TRUE(first);
  const DynamicLibrary second = std::move(*first);
  EXPECT_NE(second.symbol<void (*)()>("sin"), nullptr);
  EXPECT_EQ(first->symbol<void (*)()>("sin"), nullptr);  // NOLINT(bugprone-use-after-move)
}

TEST(DynamicLibrary, TheErrorNamesEveryCandidateAndWhy) {
  const std::string path = ::testing::TempDir() + "not_a_library.so";
  std::ofstream(path) << "this is text";
  const std::array<std::string, 2> candidates = {"libthere-is-none.so.7", path};
  const auto library = DynamicLibrary::open(candidates);
  ASSERT_FALSE(library);
  EXPECT_THAT(library.error().what, HasSubstr("libthere-is-none.so.7"));
  EXPECT_THAT(library.error().what, HasSubstr("No such file"));
  EXPECT_THAT(library.error().what, HasSubstr(path));
  EXPECT_THAT(library.error().what, HasSubstr("file too short"));
  std::filesystem::remove(path);
}

TEST(DynamicLibrary, ManyCandidatesGiveABoundedError) {
  const std::vector<std::string> candidates(1000, "/nowhere/libthere-is-none.so.7");
  const auto library = DynamicLibrary::open(candidates);
  ASSERT_FALSE(library);
  EXPECT_LT(library.error().what.size(), 2200U);
}

TEST(DynamicLibrary, NoCandidateIsAnError) {
  const std::array<std::string, 1> candidates = {""};
  EXPECT_FALSE(DynamicLibrary::open(candidates));
  EXPECT_FALSE(DynamicLibrary::open({}));
}

}  // namespace
}  // namespace moetune
