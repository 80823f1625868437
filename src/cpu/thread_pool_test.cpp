#include "cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace moetune {
namespace {

TEST(ThreadPool, EveryWorkerRunsOnceInEveryRegion) {
  for (const std::int64_t threads : {1, 2, 3, 17}) {  // more than there are processors, too
    auto pool = ThreadPool::create(threads);
    ASSERT_TRUE(pool);
    ASSERT_EQ((*pool)->size(), threads);
    std::vector<std::int64_t> calls(static_cast<std::size_t>(threads));
    for (int region = 0; region < 300; ++region)
      (*pool)->run([&](std::int64_t worker) { ++calls[static_cast<std::size_t>(worker)]; });
    for (const std::int64_t count : calls) EXPECT_EQ(count, 300);
  }
}

TEST(ThreadPool, WakesAfterSleep) {
  auto pool = ThreadPool::create(4);
  ASSERT_TRUE(pool);
  std::atomic<int> calls{0};
  for (int region = 0; region < 3; ++region) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far beyond the spinning
    (*pool)->run([&](std::int64_t) { ++calls; });
  }
  EXPECT_EQ(calls, 12);
}

TEST(ThreadPool, EndsWithoutEverRunning) { EXPECT_TRUE(ThreadPool::create(8)); }

TEST(ThreadPool, RefusesWhatNoMachineHas) {
  EXPECT_FALSE(ThreadPool::create(0));
  EXPECT_FALSE(ThreadPool::create(-1));
  const auto many = ThreadPool::create(1 << 20);
  ASSERT_FALSE(many);
  EXPECT_NE(many.error().what.find("1048576"), std::string::npos);
}

TEST(WorkItems, EachItemOnceWhateverTheSchedule) {
  auto pool = ThreadPool::create(3);
  ASSERT_TRUE(pool);
  for (const bool dynamic : {false, true})
    for (const std::int64_t count : {0, 1, 2, 3, 100}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
      WorkItems items(count, 3, dynamic);
      (*pool)->run([&](std::int64_t worker) {
        items.for_each(worker, [&](std::int64_t item) { ++done[static_cast<std::size_t>(item)]; });
      });
      for (const auto& times : done) EXPECT_EQ(times, 1);
    }
}

}  // namespace
}  // namespace moetune
