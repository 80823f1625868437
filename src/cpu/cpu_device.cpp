#include "cpu/cpu_device.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "cpu/ceiling_kernels.h"
#include "cpu/thread_pool.h"
#include "model/layer.h"

namespace moetune {
namespace {

constexpr std::int64_t kMegabyte = 1'000'000;
constexpr std::array<std::int64_t, 6> kReadSizes = {1 * kMegabyte,  4 * kMegabyte,   16 * kMegabyte,
                                                    64 * kMegabyte, 256 * kMegabyte, 600 * kMegabyte};
/// Rotating through the memory, a byte is read again only after all others, many caches later.
constexpr std::int64_t kMemory = 640 << 20;
constexpr std::int64_t kLeastMemory = 160 << 20;
constexpr std::int64_t kPage = 4096;

/// One way to read.
struct ReadPlan {
  std::int64_t threads = 1, streams = 1, ahead = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The threads and the memory that the ceilings are measured with.
class CeilingBench {
 public:
  static Result<std::unique_ptr<CeilingBench>> create(std::int64_t threads) {
    std::unique_ptr<CeilingBench> bench(new CeilingBench);
    auto memory = Buffer::allocate(kMemory);
    for (std::int64_t size = kMemory / 2; !memory && size >= kLeastMemory; size /= 2) memory = Buffer::allocate(size);
    if (!memory) return tl::unexpected(memory.error());
    bench->memory_ = std::move(*memory);
    // Half of the threads can read faster than all of them where those share a core.
    for (std::int64_t count = threads; bench->pools_.size() < 2; count = (threads + 1) / 2) {
      MOETUNE_TRY(auto pool, ThreadPool::create(count));
      bench->pools_.push_back(std::move(pool));
    }
    bench->touch();
    return bench;
  }

  /// GB/s of cold reads by size.
  std::vector<Ceilings::Read> reads() {
    std::vector<ReadPlan> plans;
    for (const auto& pool : pools_)
      for (const std::int64_t streams : {1, 2, 4})
        for (const std::int64_t ahead : {0, 1024, 4096}) plans.push_back({pool->size(), streams, ahead});
    std::vector<Ceilings::Read> reads;
    for (const std::int64_t bytes : kReadSizes) {
      if (bytes > memory_.size()) break;
      reads.push_back({bytes, best_read(bytes, plans)});
    }
    return reads;
  }

  double copy_gb_s() {
    constexpr std::int64_t kBytes = 64 << 20;
    constexpr int kRepeats = 5;
    double best = 0;
    for (const bool around : {false, true}) {
      std::vector<double> seconds;
      for (int repeat = 0; repeat < kRepeats; ++repeat) seconds.push_back(copy_once(repeat * kBytes, kBytes, around));
      best = std::max(best, 2.0 * kBytes / median(seconds) / 1e9);
    }
    return best;
  }

  /// TFLOP/s of `loop` on all threads.
  double tflops(double (*loop)(std::int64_t)) {
    constexpr double kSeconds = 0.02;
    constexpr int kRepeats = 6;
    std::int64_t rounds = 1 << 14;
    while (time_loop(loop, rounds).first < kSeconds) rounds *= 2;
    double best = 0;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const auto [seconds, operations] = time_loop(loop, rounds);
      best = std::max(best, operations / seconds / 1e12);
    }
    return best;
  }

 private:
  CeilingBench() = default;

  ThreadPool& pool(std::int64_t threads) const {
    for (const auto& one : pools_)
      if (one->size() == threads) return *one;
    return *pools_.front();
  }

  /// Pages exist once they are written.
  void touch() {
    const std::int64_t workers = pools_.front()->size();
    const std::int64_t part = memory_.size() / workers;
    pools_.front()->run(
        [&](std::int64_t worker) { std::memset(memory_.data() + worker * part, 1, static_cast<std::size_t>(part)); });
  }

  /// Sorts the plans by their speed at this size, drops the slow ones before the sizes where a try costs much.
  double best_read(std::int64_t bytes, std::vector<ReadPlan>& plans) {
    constexpr std::int64_t kLarge = 256 * kMegabyte;
    constexpr std::size_t kKept = 4;
    const int repeats = bytes >= kLarge ? 3 : bytes > 8 * kMegabyte ? 7 : 15;
    std::vector<std::pair<double, ReadPlan>> timed;
    for (const ReadPlan& plan : plans) timed.emplace_back(read_seconds(bytes, plan, repeats), plan);
    std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    if (bytes >= kLarge / 4) {
      plans.clear();
      for (std::size_t i = 0; i < std::min(kKept, timed.size()); ++i) plans.push_back(timed[i].second);
    }
    return static_cast<double>(bytes) / timed.front().first / 1e9;
  }

  double read_seconds(std::int64_t bytes, const ReadPlan& plan, int repeats) {
    std::vector<double> seconds;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      if (at_ + bytes > memory_.size()) at_ = 0;
      const std::byte* data = memory_.data() + at_;
      const double start = now_s();
      pool(plan.threads).run([&](std::int64_t worker) {
        const std::int64_t first = worker * bytes / plan.threads / kPage * kPage;
        const std::int64_t last = (worker + 1) * bytes / plan.threads / kPage * kPage;
        kept_.fetch_xor(kernels_.read(data + first, last - first, plan.streams, plan.ahead), std::memory_order_relaxed);
      });
      seconds.push_back(now_s() - start);
      at_ += (bytes + kPage - 1) / kPage * kPage;
    }
    return median(seconds);
  }

  double copy_once(std::int64_t offset, std::int64_t bytes, bool around_caches) {
    const std::int64_t half = memory_.size() / 2;
    const std::int64_t from = offset % (half - bytes + 1) / kPage * kPage;
    const double start = now_s();
    pools_.front()->run([&](std::int64_t worker) {
      const std::int64_t part = bytes / pools_.front()->size() / kPage * kPage;
      std::byte* data = memory_.data() + from + worker * part;
      kernels_.copy(data, data + half, part, around_caches);
    });
    return now_s() - start;
  }

  std::pair<double, double> time_loop(double (*loop)(std::int64_t), std::int64_t rounds) {
    std::vector<double> operations(static_cast<std::size_t>(pools_.front()->size()));
    const double start = now_s();
    pools_.front()->run([&](std::int64_t worker) { operations[static_cast<std::size_t>(worker)] = loop(rounds); });
    const double seconds = now_s() - start;
    double all = 0;
    for (const double one : operations) all += one;
    return {seconds, all};
  }

  CeilingKernels kernels_ = ceiling_kernels();
  Buffer memory_;
  std::vector<std::unique_ptr<ThreadPool>> pools_;  ///< all threads first, then half of them
  std::int64_t at_ = 0;                             ///< where the next cold read begins
  std::atomic<std::uint64_t> kept_{0};              ///< so that no read is for nothing
};

}  // namespace

std::vector<Target> CpuDevice::targets() const { return {probe_cpu()}; }

Result<Ceilings> CpuDevice::measure(const Target& target) const {
  MOETUNE_TRY(const auto bench, CeilingBench::create(std::max<std::int64_t>(target.cores.value_or(1), 1)));
  const CeilingKernels kernels = ceiling_kernels();
  Ceilings ceilings;
  ceilings.reads = bench->reads();
  ceilings.read_gb_s = ceilings.reads.back().gb_s;
  ceilings.copy_gb_s = bench->copy_gb_s();
  ceilings.bf16_tflops = bench->tflops(kernels.multiply_add);
  if (kernels.dot_bf16 != nullptr)
    ceilings.bf16_tflops = std::max(ceilings.bf16_tflops, bench->tflops(kernels.dot_bf16));
  return ceilings;
}

}  // namespace moetune
