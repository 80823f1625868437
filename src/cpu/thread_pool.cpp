#include "cpu/thread_pool.h"

#include <fmt/format.h>
#include <hwy/cache_control.h>

#include <system_error>

namespace moetune {
namespace {

constexpr std::int64_t kMaxThreads = 1024;

/// Pauses of about 10 ns (Intel before Skylake, AMD) to 40 ns (Skylake and later): 20 to 80 µs. Longer than the serial
/// stretches between the regions of one call, so that helpers sleep between calls only.
constexpr int kSpins = 2000;

/// Returns once `value` is no longer `old`: spins, then sleeps.
void await_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    hwy::Pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(std::int64_t threads) {
  if (threads < 1 || threads > kMaxThreads)
    return fail(fmt::format("{} threads asked for; 1 to {} are possible", threads, kMaxThreads));
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  pool->helpers_.reserve(static_cast<std::size_t>(threads) - 1);
  try {
    for (std::int64_t worker = 1; worker < threads; ++worker)
      pool->helpers_.emplace_back([raw = pool.get(), worker] { raw->help(worker); });
  } catch (const std::system_error& error) {
    return fail(fmt::format("the system gave {} of {} threads: {}", pool->size(), threads, error.what()),
                {"use fewer threads, or raise the limit (ulimit -u)"});
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& helper : helpers_) helper.join();
}

void ThreadPool::region(Task task, void* context) {
  if (helpers_.empty()) return task(context, 0);
  task_ = task;
  context_ = context;
  pending_.store(static_cast<std::uint32_t>(helpers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  task(context, 0);
  for (auto left = pending_.load(std::memory_order_acquire); left != 0; left = pending_.load(std::memory_order_acquire))
    await_change(pending_, left);
}

void ThreadPool::help(std::int64_t worker) {
  for (std::uint32_t seen = 0;; ++seen) {
    await_change(epoch_, seen);
    if (stop_) return;
    task_(context_, worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

}  // namespace moetune
