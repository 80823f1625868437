#include "cuda/module_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <thread>

#include "base/file.h"
#include "cuda/cache_entry.h"
#include "cuda/test_compiler.h"

namespace moetune::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

CompiledKernel sample() {
  CompiledKernel kernel;
  kernel.cubin = std::string(
      "\x7f"
      "ELF\0\1\2\3",
      8);
  kernel.log = "a warning\n";
  kernel.lowered["f<\"x\">"] = "_Z1f";
  KernelResources resources;
  resources.name = "_Z1f";
  resources.registers = 40;
  resources.static_shared_bytes = 4096;
  resources.max_threads = 256;
  kernel.kernels = {resources};
  return kernel;
}

TEST(CacheEntry, HoldsEverything) {
  const auto kernel = sample();
  const auto bytes = encode_cache_entry("key", kernel);
  const auto back = decode_cache_entry("key", bytes);
  ASSERT_TRUE(back) << back.error().what;
  ASSERT_TRUE(back->has_value());
  EXPECT_EQ((*back)->cubin, kernel.cubin);
  EXPECT_EQ((*back)->log, kernel.log);
  EXPECT_EQ((*back)->lowered, kernel.lowered);
  EXPECT_EQ((*back)->kernels, kernel.kernels);
}

TEST(CacheEntry, HoldsARefusalToo) {
  const Reason reason{ReasonCode::arch, "have", "need", "hint", "source"};
  const auto back = decode_cache_entry("key", encode_cache_entry("key", tl::unexpected(CompileFailure{reason, true})));
  ASSERT_TRUE(back) << back.error().what;
  ASSERT_FALSE(back->has_value());
  EXPECT_EQ(back->error().reason, reason);
  EXPECT_TRUE(back->error().in_source);
}

TEST(CacheEntry, AnyChangedOrMissingByteIsSeen) {
  const auto bytes = encode_cache_entry("key", sample());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode_cache_entry("key", std::string_view(bytes).substr(0, length))) << length;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    auto damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_FALSE(decode_cache_entry("key", damaged)) << at;
  }
  EXPECT_FALSE(decode_cache_entry("key", bytes + "x"));
  EXPECT_FALSE(decode_cache_entry("other", bytes));
}

TEST(CacheEntry, AnotherVersionIsNotRead) {
  auto bytes = encode_cache_entry("key", sample());
  bytes[8] = static_cast<char>(kCacheEntryVersion + 1);
  const auto back = decode_cache_entry("key", bytes);
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error().what, HasSubstr("version 2"));
}

TEST(CacheEntry, TheKeyDependsOnEverythingThatChangesTheCode) {
  std::set<std::string> keys;
  const auto base = three_kernels("sm_90a");
  const auto add = [&keys](const KernelSource& source, const std::string& compiler) {
    EXPECT_TRUE(keys.insert(cache_entry_key(source, compiler)).second);
  };
  add(base, "nvrtc 13.0");
  add(base, "nvrtc 13.1");
  auto changed = base;
  changed.text += " ";
  add(changed, "nvrtc 13.0");
  changed = base;
  changed.target = "sm_120a";
  add(changed, "nvrtc 13.0");
  changed = base;
  changed.headers["tile.cuh"] += " ";
  add(changed, "nvrtc 13.0");
  changed = base;
  changed.headers["tile2.cuh"] = "";
  add(changed, "nvrtc 13.0");
  changed = base;
  changed.options = {"-DA", "-DB"};
  add(changed, "nvrtc 13.0");
  changed.options = {"-DB", "-DA"};
  add(changed, "nvrtc 13.0");
  changed.options = {"-DA-DB"};
  add(changed, "nvrtc 13.0");
  changed = base;
  changed.expressions.push_back("f");
  add(changed, "nvrtc 13.0");
  changed.expressions.pop_back();
  EXPECT_EQ(cache_entry_key(changed, "nvrtc 13.0"), cache_entry_key(base, "nvrtc 13.0"));
}

class ModuleCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::path(::testing::TempDir()) / ("kernels" + std::to_string(::getpid()))).string();
    fs::remove_all(folder_);
    compiler_ = test_compiler();
    if (compiler_ == nullptr) GTEST_FAIL();
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] ModuleCacheOptions options() const { return {folder_, std::int64_t{512} << 20, 2}; }
  [[nodiscard]] std::vector<fs::path> entries() const {
    std::vector<fs::path> found;
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(folder_, absent)) found.push_back(entry.path());
    return found;
  }
  std::string folder_;
  std::shared_ptr<const Compiler> compiler_;
};

TEST_F(ModuleCacheTest, ASecondProcessReadsWhatTheFirstCompiled) {
  std::string cubin;
  {
    ModuleCache cache(compiler_, options());
    const auto kernel = cache.get(three_kernels("sm_90a"));
    ASSERT_TRUE(kernel) << kernel.error().have;
    cubin = (*kernel)->cubin;
    EXPECT_EQ(cache.get(three_kernels("sm_90a")), kernel);  // the same object
    EXPECT_EQ(cache.counts().compiled, 1);
  }
  ModuleCache cache(compiler_, options());
  const auto kernel = cache.get(three_kernels("sm_90a"));
  ASSERT_TRUE(kernel);
  EXPECT_EQ((*kernel)->cubin, cubin);
  EXPECT_EQ((*kernel)->resources("space::dynamic<Tile<2>>")->parameter_bytes, 20);
  EXPECT_EQ(cache.counts().compiled, 0);
  EXPECT_EQ(cache.counts().from_disk, 1);
}

TEST_F(ModuleCacheTest, ADamagedEntryIsCompiledAgainAndRepaired) {
  const auto source = scale_kernel("sm_80");
  std::string cubin;
  {
    ModuleCache cache(compiler_, options());
    cubin = (*cache.get(source))->cubin;
  }
  ASSERT_EQ(entries().size(), 1U);
  const auto path = entries().front().string();
  auto bytes = *read_file(path, 1 << 20);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ASSERT_TRUE(write_file(path, bytes));
  {
    ModuleCache cache(compiler_, options());
    const auto kernel = cache.get(source);
    ASSERT_TRUE(kernel);
    EXPECT_EQ((*kernel)->cubin, cubin);
    EXPECT_EQ(cache.counts().rebuilt, 1);
  }
  ASSERT_TRUE(write_file(path, ""));
  {
    ModuleCache cache(compiler_, options());
    EXPECT_TRUE(cache.get(source));
    EXPECT_EQ(cache.counts().rebuilt, 1);
  }
  ModuleCache cache(compiler_, options());
  EXPECT_TRUE(cache.get(source));
  EXPECT_EQ(cache.counts().from_disk, 1);
}

TEST_F(ModuleCacheTest, ARefusalIsKept) {
  auto source = scale_kernel("sm_80");
  source.text += "#error no\n";
  {
    ModuleCache cache(compiler_, options());
    EXPECT_FALSE(cache.get(source));
  }
  ModuleCache cache(compiler_, options());
  const auto again = cache.get(source);
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().have, HasSubstr("#error"));
  EXPECT_EQ(cache.counts().compiled, 0);
}

TEST_F(ModuleCacheTest, AFailureOfTheSurroundingsIsNot) {
  ModuleCache cache(compiler_, options());
  EXPECT_FALSE(cache.get(scale_kernel("sm_30")));
  EXPECT_FALSE(cache.get(scale_kernel("sm_30")));
  EXPECT_EQ(cache.counts().compiled, 2);
  EXPECT_TRUE(entries().empty());
}

TEST_F(ModuleCacheTest, ManyThreadsAskingForOneKernelCompileItOnce) {
  ModuleCache cache(compiler_, options());
  std::vector<std::thread> threads;
  std::vector<const CompiledKernel*> got(8);
  for (auto& pointer : got)
    threads.emplace_back([&cache, &pointer] {
      if (const auto kernel = cache.get(scale_kernel("sm_80"))) pointer = kernel->get();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_NE(got[0], nullptr);
  for (const auto* pointer : got) EXPECT_EQ(pointer, got[0]);
  EXPECT_EQ(cache.counts().compiled, 1);
}

// Two caches on one folder are two processes as far as the files are concerned.
TEST_F(ModuleCacheTest, CachesThatShareAFolderPublishWholeEntries) {
  constexpr int kKernels = 6;
  std::vector<std::thread> threads;
  for (int process = 0; process < 3; ++process)
    threads.emplace_back([this] {
      ModuleCache cache(compiler_, options());
      std::vector<ModuleCache::Future> futures;
      for (int i = 0; i < kKernels; ++i) futures.push_back(cache.submit(scale_kernel("sm_80", std::to_string(i))));
      for (auto& future : futures) EXPECT_TRUE(future.get());
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(entries().size(), static_cast<std::size_t>(kKernels));
  ModuleCache cache(compiler_, options());
  for (int i = 0; i < kKernels; ++i) EXPECT_TRUE(cache.get(scale_kernel("sm_80", std::to_string(i))));
  EXPECT_EQ(cache.counts().from_disk, kKernels);
}

TEST_F(ModuleCacheTest, TheLongestUnusedGoFirst) {
  auto limited = options();
  limited.threads = 1;
  std::uintmax_t entry_bytes = 0;
  {
    ModuleCache cache(compiler_, limited);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(cache.get(scale_kernel("sm_80", std::to_string(i))));
    ASSERT_EQ(entries().size(), 3U);
    entry_bytes = fs::file_size(entries().front());
  }
  // As if they had been made an hour apart and the oldest read since.
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 3; ++i)
    fs::last_write_time(
        folder_ + "/" + cache_entry_key(scale_kernel("sm_80", std::to_string(i)), compiler_->identity()) + ".kernel",
        now - std::chrono::hours(4 - i));
  limited.max_bytes = static_cast<std::int64_t>(entry_bytes) * 2 + 100;
  {
    ModuleCache cache(compiler_, limited);
    ASSERT_TRUE(cache.get(scale_kernel("sm_80", "0")));
    ASSERT_TRUE(cache.get(scale_kernel("sm_80", "3")));
  }
  EXPECT_EQ(entries().size(), 2U);
  ModuleCache cache(compiler_, options());
  EXPECT_TRUE(cache.get(scale_kernel("sm_80", "0")));
  EXPECT_TRUE(cache.get(scale_kernel("sm_80", "3")));
  EXPECT_EQ(cache.counts().from_disk, 2);
}

TEST_F(ModuleCacheTest, AFolderThatCannotBeWrittenCostsNoResult) {
  ModuleCache cache(compiler_, {"/proc/moetune-none", 1 << 20, 1});
  EXPECT_TRUE(cache.get(scale_kernel("sm_80")));
  ModuleCache memory_only(compiler_, {"", 1 << 20, 1});
  EXPECT_TRUE(memory_only.get(scale_kernel("sm_80")));
}

TEST_F(ModuleCacheTest, WhatWaitsWhenTheCacheEndsIsAnswered) {
  std::vector<ModuleCache::Future> futures;
  {
    ModuleCache cache(compiler_, {"", 0, 1});
    for (int i = 0; i < 5; ++i)
      futures.push_back(cache.submit(three_kernels("sm_" + std::to_string(i == 0 ? 80 : 80 + i))));
  }
  int given_up = 0;
  for (auto& future : futures) {
    ASSERT_EQ(future.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    if (const auto& answer = future.get(); !answer && answer.error().have.find("given up") != std::string::npos)
      ++given_up;
  }
  EXPECT_GE(given_up, 1);
}

}  // namespace
}  // namespace moetune::cuda
