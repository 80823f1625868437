#include "gpu/gpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cuda/gpu_device.h"
#include "cuda/graph.h"
#include "gpu/gpu_backend.h"
#include "measure/stats.h"

namespace moetune {
namespace {

constexpr std::int64_t kMegabyte = 1 << 20;
constexpr std::array<std::int64_t, 8> kReadSizes = {2, 4, 8, 16, 32, 128, 512, 1536};  ///< MB
constexpr int kThreads = 512;
constexpr int kPeakThreads = 256;
constexpr std::int64_t kPeakShared = (64 + 256) * 128;  ///< operands of multiply_rounds
constexpr std::int64_t kPiece = 16;

Target target_of(const cuda::GpuDevice& gpu) {
  Target target;
  if (auto known = find_gpu(gpu.name); known && known->compute_capability == gpu.compute_capability)
    target = *std::move(known);
  else if (auto chip = find_gpu(gpu.target()))
    target = *std::move(chip);
  target.kind = TargetKind::gpu;
  target.name = gpu.name;
  target.compute_capability = gpu.compute_capability;
  target.cores = gpu.multiprocessors;
  target.l2_bytes = gpu.l2_bytes;
  target.memory_bytes = gpu.memory_bytes;
  target.smem_per_block_bytes = gpu.shared_per_block_bytes;
  target.smem_per_sm_bytes = gpu.shared_per_sm_bytes;
  target.source = "probed";
  return target;
}

/// The measurements of one device.
class CeilingBench {
 public:
  static Result<CeilingBench> create(GpuRuntime& runtime, const Target& target) {
    constexpr std::int64_t kMost = 4096 * kMegabyte;
    MOETUNE_TRY(auto context, runtime.context());
    MOETUNE_TRY(auto stream, cuda::Stream::create(context));
    MOETUNE_TRY(auto module, runtime.load(ceiling_kernels(target)));
    MOETUNE_TRY(const auto memory, context->memory());
    const std::int64_t bytes = std::min(kMost, memory.free_bytes / 2) / kMegabyte * kMegabyte;
    MOETUNE_TRY(auto buffer, cuda::DeviceBuffer::allocate(context, static_cast<std::size_t>(bytes)));
    MOETUNE_TRY(auto sink, cuda::DeviceBuffer::allocate(context, sizeof(int)));
    MOETUNE_CHECK(buffer.fill(stream, 1));
    CeilingBench bench(std::move(stream), std::move(module), std::move(buffer), std::move(sink));
    MOETUNE_TRY(bench.multiprocessors_, context->attribute(cuda::cu::DeviceAttribute::multiprocessors));
    return bench;
  }

  Result<Ceilings> measure() {
    Ceilings ceilings;
    MOETUNE_TRY(ceilings.bf16_tflops, tflops());  // first: it warms the chip up
    for (const std::int64_t megabytes : kReadSizes) {
      const std::int64_t bytes = megabytes * kMegabyte;
      if (2 * bytes > size()) break;
      MOETUNE_TRY(const double us, read_us(bytes));
      ceilings.reads.push_back({bytes, static_cast<double>(bytes) / us / 1e3});
    }
    if (ceilings.reads.empty()) return fail("less than 4 MB of GPU memory are free: nothing can be measured");
    ceilings.read_gb_s = ceilings.reads.back().gb_s;
    MOETUNE_TRY(ceilings.copy_gb_s, copy_gb_s());
    return ceilings;
  }

 private:
  CeilingBench(cuda::Stream stream, cuda::Module module, cuda::DeviceBuffer buffer, cuda::DeviceBuffer sink)
      : stream_(std::move(stream)), module_(std::move(module)), buffer_(std::move(buffer)), sink_(std::move(sink)) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(buffer_.bytes()); }

  /// Median microseconds of a lap of `enqueue`, after one round that does not count.
  Result<double> lap_us(std::size_t laps, const std::function<Status(std::size_t)>& enqueue) {
    constexpr int kRounds = 7;
    MOETUNE_TRY(const auto graph, cuda::TimedGraph::capture(stream_, laps, enqueue, cuda::Marks::ends));
    MOETUNE_CHECK(graph.replay(stream_));
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      MOETUNE_TRY(const auto one, graph.replay(stream_));
      times.push_back(one.front());
    }
    return median(times);
  }

  /// The best of several grids; every lap reads other memory.
  Result<double> read_us(std::int64_t bytes) {
    MOETUNE_TRY(const auto kernel, module_.function("ceiling_read"));
    const auto laps = static_cast<std::size_t>(std::clamp<std::int64_t>(size() / bytes, 1, 64));
    double best = 0;
    for (const std::int64_t blocks : {1, 2, 4}) {
      const auto lap = [&](std::size_t i) -> Status {
        const auto* data = buffer_.as<std::byte>() + static_cast<std::int64_t>(i) * bytes;
        return kernel(stream_, launch(blocks * multiprocessors_, kThreads), data,
                      static_cast<long long>(bytes / kPiece), sink_.as<unsigned>());
      };
      MOETUNE_TRY(const double us, lap_us(laps, lap));
      best = best == 0 ? us : std::min(best, us);
    }
    return best;
  }

  Result<double> copy_gb_s() {
    MOETUNE_TRY(const auto kernel, module_.function("ceiling_copy"));
    constexpr std::int64_t kBlocksPerSm = 4;
    const std::int64_t half = size() / 2;
    const auto lap = [&](std::size_t) -> Status {
      return kernel(stream_, launch(kBlocksPerSm * multiprocessors_, kThreads), buffer_.as<std::byte>(),
                    buffer_.as<std::byte>() + half, static_cast<long long>(half / kPiece));
    };
    MOETUNE_TRY(const double us, lap_us(1, lap));
    return 2.0 * static_cast<double>(half) / us / 1e3;
  }

  Result<double> tflops() {
    MOETUNE_TRY(const auto kernel, module_.function("ceiling_multiply"));
    MOETUNE_TRY(const auto global, module_.global("ceiling_operations"));
    long long operations = 0;
    const auto& context = *stream_.context();
    MOETUNE_CHECK(
        context.check(context.api().copy_to_host(&operations, global.pointer, sizeof(operations)), "cuMemcpyDtoH"));
    constexpr int kRounds = 4096;
    MOETUNE_CHECK(kernel.allow_dynamic_shared(kPeakShared));
    MOETUNE_TRY(const int resident, kernel.blocks_per_sm(kPeakThreads, kPeakShared));
    cuda::Launch how = launch(resident * multiprocessors_, kPeakThreads);
    how.dynamic_shared_bytes = kPeakShared;
    const auto lap = [&](std::size_t) -> Status { return kernel(stream_, how, kRounds, sink_.as<unsigned>()); };
    MOETUNE_TRY(const double us, lap_us(4, lap));
    return static_cast<double>(operations) * kRounds * static_cast<double>(how.grid[0]) / us / 1e6;
  }

  static cuda::Launch launch(std::int64_t blocks, int threads) {
    cuda::Launch how;
    how.grid[0] = static_cast<std::uint32_t>(blocks);
    how.block[0] = static_cast<std::uint32_t>(threads);
    return how;
  }

  cuda::Stream stream_;
  cuda::Module module_;
  cuda::DeviceBuffer buffer_, sink_;
  std::int64_t multiprocessors_ = 0;
};

}  // namespace

cuda::KernelSource ceiling_kernels(const Target& target) {
  return kernel_source("ceilings.cu",
                       fmt::format(R"(#include "common/ceilings.cuh"
using namespace moetune;
static_assert(kPeakThreads == {1} && kPeakShared <= {2}, "the host counts otherwise");
extern "C" __global__ void __launch_bounds__({0}) ceiling_read(const Quad* data, i64 count, u32* sink) {{ read_once(data, count, sink); }}
extern "C" __global__ void __launch_bounds__({0}) ceiling_copy(const Quad* from, Quad* to, i64 count) {{ copy_once(from, to, count); }}
extern "C" __global__ void __launch_bounds__({1}) ceiling_multiply(int rounds, u32* sink) {{ multiply_rounds(rounds, sink); }}
extern "C" __device__ const long long ceiling_operations = kPeakOperations;
)",
                                   kThreads, kPeakThreads, kPeakShared),
                       target);
}

std::vector<Target> NvidiaDevice::targets() const {
  std::vector<Target> targets;
  if (!runtime_->driver()) return targets;
  const auto gpus = cuda::list_gpus(**runtime_->driver());
  if (!gpus) return targets;
  for (const auto& gpu : *gpus) targets.push_back(target_of(gpu));
  return targets;
}

Result<Ceilings> NvidiaDevice::measure(const Target& target) const {
  MOETUNE_TRY(auto bench, CeilingBench::create(*runtime_, target));
  return bench.measure();
}

}  // namespace moetune
