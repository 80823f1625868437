// What only a GPU can show: that the declarations, the launches and the clocks are right, and how errors of a device
// come out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "cuda/gpu_device.h"
#include "cuda/graph.h"
#include "cuda/module.h"
#include "cuda/module_cache.h"
#include "cuda/nvml.h"
#include "cuda/test_compiler.h"

namespace moetune::cuda {
namespace {

using ::testing::HasSubstr;

constexpr const char* kKernels = R"(
extern "C" __global__ void fill_index(int* p, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = i;
}
struct Pair { float by; int add; };
extern "C" __global__ void affine(float* p, Pair pair, long long n) {
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = p[i] * pair.by + pair.add;
}
extern "C" __global__ void increment(int* p) { atomicAdd(p, 1); }
extern "C" __global__ void spin(long long nanoseconds) {
  long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - start < nanoseconds);
}
extern "C" __global__ void through_shared(int* p, int words) {
  extern __shared__ int s[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) s[i] = i;
  __syncthreads();
  int sum = 0;
  for (int i = threadIdx.x; i < words; i += blockDim.x) sum += s[words - 1 - i];
  atomicAdd(p, sum);
}
extern "C" __global__ void own_name(unsigned* p) {
  unsigned rank, size;
  asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %cluster_nctarank;" : "=r"(size));
  p[blockIdx.x] = rank + 100 * size;
}
__device__ int counter = 7;
extern "C" __global__ void read_counter(int* p) { *p = counter; }
extern "C" __global__ void write_to(int* p) { *p = 1; }
extern "C" __global__ void trap() { asm volatile("trap;"); }
)";

/// The first GPU, a stream, and the kernels above.
struct Bench {
  std::shared_ptr<const Driver> driver;
  GpuDevice gpu;
  ContextRef context;
  std::optional<Stream> stream;
  std::optional<Module> module;

  Status open() {
    auto opened = Driver::open();
    if (!opened) return tl::unexpected(to_error(opened.error()));
    driver = *std::move(opened);
    MOETUNE_TRY(const auto gpus, list_gpus(*driver));
    gpu = gpus.at(0);
    MOETUNE_TRY(context, Context::create(driver, 0));
    MOETUNE_TRY(auto made, Stream::create(context));
    stream = std::move(made);
    const auto compiler = Compiler::open();
    if (!compiler) return tl::unexpected(to_error(compiler.error()));
    KernelSource source{"kernels.cu", kKernels, {}, gpu.target(), {}, {}};
    const auto kernel = (*compiler)->compile(source);
    if (!kernel) return tl::unexpected(to_error(kernel.error().reason));
    resources = kernel->kernels;
    MOETUNE_TRY(auto loaded, Module::load(context, kernel->cubin));
    module = std::move(loaded);
    return {};
  }
  std::vector<KernelResources> resources;
};

class CudaGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto status = bench_.open();
    ASSERT_TRUE(status) << status.error().what;
  }
  Function function(const std::string& name) { return bench_.module->function(name).value(); }
  const Stream& stream() { return *bench_.stream; }
  DeviceBuffer zeros(std::size_t bytes) {
    auto buffer = DeviceBuffer::allocate(bench_.context, bytes).value();
    EXPECT_TRUE(buffer.fill(stream(), 0));
    return buffer;
  }
  template <class T>
  std::vector<T> read(const DeviceBuffer& buffer) {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    EXPECT_TRUE(stream().synchronize());
    EXPECT_TRUE(buffer.download(std::as_writable_bytes(std::span(values))));
    return values;
  }
  Bench bench_;
};

TEST_F(CudaGpuTest, TheDeviceIsDescribed) {
  const auto& gpu = bench_.gpu;
  std::cout << dump_json_pretty(to_json(gpu)) << "\n";
  EXPECT_FALSE(gpu.name.empty());
  EXPECT_THAT(gpu.uuid, ::testing::MatchesRegex("GPU-[0-9a-f]*-[0-9a-f]*-[0-9a-f]*-[0-9a-f]*-[0-9a-f]*"));
  EXPECT_GT(gpu.multiprocessors, 0);
  EXPECT_GE(gpu.shared_per_block_bytes, 48 * 1024);
  EXPECT_GE(gpu.shared_per_sm_bytes, gpu.shared_per_block_bytes);
  if (gpu.compute_capability == "9.0") {
    EXPECT_EQ(gpu.shared_per_block_bytes, 232448);
    EXPECT_EQ(gpu.registers_per_sm, 65536);
    EXPECT_TRUE(gpu.clusters);
  }
}

TEST_F(CudaGpuTest, MemoryComesBackAsItWent) {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> values(1 << 17);
  for (auto& value : values) value = random();
  const auto bytes = std::as_bytes(std::span(values));
  const auto buffer = DeviceBuffer::of(bench_.context, bytes);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(read<std::uint64_t>(*buffer), values);
  ASSERT_TRUE(buffer->upload(bytes.first(24), 8));
  auto expected = values;
  std::copy_n(values.begin(), 3, expected.begin() + 1);
  EXPECT_EQ(read<std::uint64_t>(*buffer), expected);

  const auto pinned = PinnedBuffer::allocate(bench_.context, bytes.size());
  const auto other = DeviceBuffer::allocate(bench_.context, bytes.size());
  ASSERT_TRUE(pinned && other);
  ASSERT_TRUE(other->copy(stream(), *buffer, bytes.size()));
  ASSERT_TRUE(other->download(stream(), pinned->bytes()));
  ASSERT_TRUE(stream().synchronize());
  EXPECT_EQ(std::memcmp(pinned->bytes().data(), expected.data(), bytes.size()), 0);
  ASSERT_TRUE(buffer->fill(stream(), 0xa5));
  ASSERT_TRUE(buffer->upload(stream(), pinned->bytes().first(8)));
  const auto filled = read<std::uint64_t>(*buffer);
  EXPECT_EQ(filled[0], expected[0]);
  EXPECT_EQ(filled[1], 0xa5a5a5a5a5a5a5a5U);
}

TEST_F(CudaGpuTest, LaunchesWithArgumentsOfEverySize) {
  constexpr int kCount = 10'007;
  const auto indices = zeros((kCount + 1) * sizeof(int));
  ASSERT_TRUE(function("fill_index")(stream(), {.grid = {(kCount + 255) / 256, 1, 1}, .block = {256, 1, 1}},
                                     indices.as<int>(), kCount));
  const auto got = read<int>(indices);
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(got[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(got.back(), 0);

  struct Pair {
    float by;
    int add;
  };
  const std::vector<float> ones(1000, 1.5F);
  const auto floats = DeviceBuffer::of(bench_.context, std::as_bytes(std::span(ones)));
  ASSERT_TRUE(floats);
  ASSERT_TRUE(function("affine")(stream(), {.grid = {3, 1, 1}, .block = {64, 1, 1}}, floats->as<float>(),
                                 Pair{2.0F, 10}, std::int64_t{999}));
  const auto scaled = read<float>(*floats);
  for (std::size_t i = 0; i < 999; ++i) ASSERT_EQ(scaled[i], 13.0F);
  EXPECT_EQ(scaled[999], 1.5F);
}

// The driver's own reading of the machine code is an independent check of ours.
TEST_F(CudaGpuTest, TheDriverReadsTheSameResourcesFromTheCubin) {
  const auto compiler = test_compiler();
  ASSERT_NE(compiler, nullptr);
  const auto kernel = compiler->compile(three_kernels(bench_.gpu.target()));
  ASSERT_TRUE(kernel) << kernel.error().reason.have;
  const auto module = Module::load(bench_.context, kernel->cubin);
  ASSERT_TRUE(module) << module.error().what;
  for (const auto& resources : kernel->kernels) {
    SCOPED_TRACE(resources.name);
    const auto function = module->function(resources.name);
    ASSERT_TRUE(function);
    const auto info = function->info();
    ASSERT_TRUE(info);
    EXPECT_EQ(info->registers, resources.registers);
    EXPECT_EQ(info->static_shared_bytes, resources.static_shared_bytes);
    EXPECT_EQ(info->local_bytes, resources.stack_bytes);
    if (resources.max_threads) {
      EXPECT_EQ(info->max_threads_per_block, *resources.max_threads);
    }
  }
}

TEST_F(CudaGpuTest, DynamicSharedMemoryUpToTheLimitAndNotBeyond) {
  const auto kernel = function("through_shared");
  const auto limit = bench_.gpu.shared_per_block_bytes;
  const auto words = static_cast<int>(limit / 4);
  const auto sum = zeros(sizeof(int));
  const Launch launch{.block = {256, 1, 1}, .dynamic_shared_bytes = static_cast<std::uint32_t>(limit)};
  EXPECT_FALSE(kernel(stream(), launch, sum.as<int>(), words));  // not asked for
  ASSERT_TRUE(kernel.allow_dynamic_shared(limit));
  ASSERT_TRUE(kernel(stream(), launch, sum.as<int>(), words));
  EXPECT_EQ(read<int>(sum)[0], static_cast<int>(std::int64_t{words} * (words - 1) / 2));
  const auto beyond = kernel.allow_dynamic_shared(limit + 1);
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().what, HasSubstr(std::to_string(limit)));
  EXPECT_EQ(beyond.error().kind, ErrorKind::other);
  const auto blocks = kernel.blocks_per_sm(256, limit);
  ASSERT_TRUE(blocks);
  EXPECT_EQ(*blocks, 1);
}

TEST_F(CudaGpuTest, Clusters) {
  if (!bench_.gpu.clusters) GTEST_SKIP() << "compute capability " << bench_.gpu.compute_capability << " has none";
  const auto names = zeros(8 * sizeof(unsigned));
  const Launch launch{.grid = {8, 1, 1}, .block = {32, 1, 1}, .cluster = {4, 1, 1}};
  const auto kernel = function("own_name");
  ASSERT_TRUE(kernel(stream(), launch, names.as<unsigned>()));
  EXPECT_THAT(read<unsigned>(names), ::testing::ElementsAre(400, 401, 402, 403, 400, 401, 402, 403));
  const auto clusters = kernel.clusters_on_device(launch);
  ASSERT_TRUE(clusters);
  EXPECT_GT(*clusters, 0);
}

TEST_F(CudaGpuTest, OverlappingAndCooperativeLaunchesRun) {
  const auto count = zeros(sizeof(int));
  ASSERT_TRUE(function("increment")(stream(), {.grid = {4, 1, 1}, .cooperative = true}, count.as<int>()));
  if (bench_.gpu.clusters) {
    ASSERT_TRUE(function("increment")(stream(), {.grid = {3, 1, 1}, .overlaps_previous = true}, count.as<int>()));
  }
  EXPECT_EQ(read<int>(count)[0], bench_.gpu.clusters ? 7 : 4);
}

TEST_F(CudaGpuTest, GlobalsOfAModule) {
  const auto global = bench_.module->global("counter");
  ASSERT_TRUE(global);
  EXPECT_EQ(global->bytes, sizeof(int));
  const auto value = zeros(sizeof(int));
  ASSERT_TRUE(function("read_counter")(stream(), {}, value.as<int>()));
  EXPECT_EQ(read<int>(value)[0], 7);
  EXPECT_FALSE(bench_.module->global("absent"));
  EXPECT_FALSE(bench_.module->function("absent"));
}

TEST_F(CudaGpuTest, AGraphRunsOncePerLaunchAndNotWhileRecorded) {
  const auto count = zeros(sizeof(int));
  const auto increment = function("increment");
  const auto graph = Graph::capture(stream(), [&]() -> Status {
    for (int i = 0; i < 3; ++i) MOETUNE_CHECK(increment(stream(), {}, count.as<int>()));
    return {};
  });
  ASSERT_TRUE(graph) << graph.error().what;
  EXPECT_EQ(graph->nodes(), 3U);
  EXPECT_EQ(read<int>(count)[0], 0);
  const auto exec = GraphExec::instantiate(*graph);
  ASSERT_TRUE(exec);
  ASSERT_TRUE(exec->upload(stream()));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(exec->launch(stream()));
  EXPECT_EQ(read<int>(count)[0], 15);
}

TEST_F(CudaGpuTest, AFailedRecordingLeavesTheStreamUsable) {
  const auto graph = Graph::capture(stream(), [&] { return stream().synchronize(); });  // not allowed while recording
  EXPECT_FALSE(graph);
  const auto count = zeros(sizeof(int));
  ASSERT_TRUE(function("increment")(stream(), {}, count.as<int>()));
  EXPECT_EQ(read<int>(count)[0], 1);
}

// A lap cannot be shorter than it spins by the device's own timer; how much longer is printed, not judged.
TEST_F(CudaGpuTest, TimedGraphsMeasureTheDevice) {
  const auto spin = function("spin");
  const auto enqueue = [&](std::size_t lap) {
    return spin(stream(), {}, std::int64_t{200'000} * static_cast<std::int64_t>(lap + 1));
  };
  const auto laps = TimedGraph::capture(stream(), 4, enqueue, Marks::laps);
  ASSERT_TRUE(laps) << laps.error().what;
  for (int replay = 0; replay < 3; ++replay) {
    const auto us = laps->replay(stream());
    ASSERT_TRUE(us) << us.error().what;
    ASSERT_EQ(us->size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_GE((*us)[i], 198.0 * static_cast<double>(i + 1));
      std::cout << "lap of " << 200 * (i + 1) << " us took " << (*us)[i] << " us\n";
    }
  }
  const auto ends = TimedGraph::capture(stream(), 4, enqueue, Marks::ends);
  ASSERT_TRUE(ends);
  const auto mean = ends->replay(stream());
  ASSERT_TRUE(mean);
  ASSERT_EQ(mean->size(), 1U);
  EXPECT_GE(mean->front(), 499.0);
  std::cout << "mean of laps of 500 us: " << mean->front() << " us\n";
}

TEST_F(CudaGpuTest, WhatMarksCostIsShown) {
  const auto count = zeros(sizeof(int));
  const auto increment = function("increment");
  const auto enqueue = [&](std::size_t) { return increment(stream(), {}, count.as<int>()); };
  for (const auto marks : {Marks::ends, Marks::laps}) {
    const auto graph = TimedGraph::capture(stream(), 100, enqueue, marks);
    ASSERT_TRUE(graph);
    double mean = 0;
    for (int replay = 0; replay < 3; ++replay) {
      const auto us = graph->replay(stream());
      ASSERT_TRUE(us);
      mean = 0;
      for (const double lap : *us) mean += lap / static_cast<double>(us->size());
    }
    std::cout << "an empty launch with marks at " << (marks == Marks::ends ? "the ends: " : "every lap: ") << mean
              << " us\n";
  }
  EXPECT_EQ(read<int>(count)[0], 600);
}

TEST_F(CudaGpuTest, EventsOrderStreams) {
  const auto second = Stream::create(bench_.context);
  const auto event = Event::create(bench_.context);
  ASSERT_TRUE(second && event);
  const auto count = zeros(sizeof(int));
  ASSERT_TRUE(function("spin")(stream(), {}, std::int64_t{2'000'000}));
  ASSERT_TRUE(function("increment")(stream(), {}, count.as<int>()));
  ASSERT_TRUE(event->record(stream()));
  ASSERT_TRUE(second->wait(*event));
  const auto copy = DeviceBuffer::allocate(bench_.context, sizeof(int));
  ASSERT_TRUE(copy);
  ASSERT_TRUE(copy->copy(*second, count, sizeof(int)));
  EXPECT_EQ(stream().done(), false);
  ASSERT_TRUE(second->synchronize());
  EXPECT_EQ(stream().done(), true);
  EXPECT_EQ(read<int>(*copy)[0], 1);
}

TEST_F(CudaGpuTest, ErrorsThatCanBeSurvived) {
  const auto memory = DeviceBuffer::allocate(bench_.context, std::size_t{1} << 50);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().kind, ErrorKind::out_of_memory);
  EXPECT_THAT(memory.error().what, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  const auto count = zeros(sizeof(int));
  const auto launch = function("increment")(stream(), {.block = {2048, 1, 1}}, count.as<int>());
  ASSERT_FALSE(launch);
  EXPECT_EQ(launch.error().kind, ErrorKind::other);
  EXPECT_THAT(launch.error().what, HasSubstr("increment, grid 1x1x1, block 2048x1x1"));
  const auto compiler = test_compiler();
  ASSERT_NE(compiler, nullptr);
  const auto foreign = compiler->compile(scale_kernel(bench_.gpu.compute_capability == "12.0" ? "sm_90a" : "sm_120a"));
  ASSERT_TRUE(foreign);
  const auto module = Module::load(bench_.context, foreign->cubin);
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().kind, ErrorKind::other);
  EXPECT_FALSE(module.error().hints.empty());
  std::cout << module.error().what << "\n";
  ASSERT_TRUE(function("increment")(stream(), {}, count.as<int>()));
  EXPECT_EQ(read<int>(count)[0], 1);
}

/// In a process of its own: launches what kills the context and leaves with 0 where every error after it says that the
/// device is lost.
[[noreturn]] void lose_the_device(const std::string& kernel, std::int64_t argument) {
  {
    Bench bench;
    if (!bench.open()) std::_Exit(10);
    const auto function = bench.module->function(kernel);
    const auto buffer = DeviceBuffer::allocate(bench.context, 1024);
    if (!function || !buffer) std::_Exit(11);
    const auto status = kernel == "trap" ? (*function)(*bench.stream, {}) : (*function)(*bench.stream, {}, argument);
    if (!status) std::_Exit(12);
    const auto first = bench.stream->synchronize();
    if (first) std::_Exit(13);
    std::cerr << first.error().what << "\n";
    if (first.error().kind != ErrorKind::device_lost) std::_Exit(14);
    const auto later = DeviceBuffer::allocate(bench.context, 1024);
    if (later || later.error().kind != ErrorKind::device_lost) std::_Exit(15);
  }  // destructors in a lost context neither throw nor hang
  std::_Exit(0);
}

TEST(CudaGpuDeathTest, WhatLosesTheDeviceIsRecognised) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(lose_the_device("write_to", 0x10), ::testing::ExitedWithCode(0), "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EXIT(lose_the_device("write_to", 0x3), ::testing::ExitedWithCode(0), "CUDA_ERROR_");
  EXPECT_EXIT(lose_the_device("trap", 0), ::testing::ExitedWithCode(0), "CUDA_ERROR_");
}

TEST_F(CudaGpuTest, TelemetryIsOfThisDevice) {
  const auto nvml = Nvml::open();
  ASSERT_TRUE(nvml) << nvml.error().have;
  const auto idle = (*nvml)->read(bench_.gpu.pci);
  ASSERT_TRUE(idle) << idle.error().what;
  EXPECT_EQ(idle->name, bench_.gpu.name);
  EXPECT_EQ(idle->uuid, bench_.gpu.uuid);
  ASSERT_TRUE(function("spin")(stream(), {}, std::int64_t{300'000'000}));
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  const auto busy = (*nvml)->read(bench_.gpu.pci);
  ASSERT_TRUE(stream().synchronize());
  ASSERT_TRUE(busy);
  std::cout << "driver " << (*nvml)->driver_version() << "\n" << dump_json_pretty(to_json(*busy)) << "\n";
  ASSERT_TRUE(busy->sm_mhz && busy->memory_mhz && busy->power_w && busy->power_limit_w && busy->temperature_c &&
              busy->throttle_bits);
  EXPECT_GT(*busy->sm_mhz, 100);
  EXPECT_LE(*busy->sm_mhz, busy->sm_max_mhz.value_or(10'000));
  EXPECT_GT(*busy->power_w, 5.0);
  EXPECT_LT(*busy->power_w, 3000.0);
  EXPECT_GT(*busy->temperature_c, 5);
  EXPECT_LT(*busy->temperature_c, 120);
}

TEST_F(CudaGpuTest, TheCacheFeedsTheDevice) {
  const auto compiler = test_compiler();
  ASSERT_NE(compiler, nullptr);
  ModuleCache cache(compiler, {"", 1 << 30, 4});
  std::vector<ModuleCache::Future> futures;
  for (int i = 0; i < 16; ++i) {
    auto source = scale_kernel(bench_.gpu.target(), std::to_string(i));
    futures.push_back(cache.submit(source));
  }
  std::vector<float> values(1000, 1.0F);
  const auto buffer = DeviceBuffer::of(bench_.context, std::as_bytes(std::span(values)));
  ASSERT_TRUE(buffer);
  for (auto& future : futures) {
    const auto kernel = future.get();
    ASSERT_TRUE(kernel) << kernel.error().have;
    const auto module = Module::load(bench_.context, (*kernel)->cubin);
    ASSERT_TRUE(module) << module.error().what;
    ASSERT_TRUE(module->function("scale").value()(stream(), {.grid = {4, 1, 1}, .block = {256, 1, 1}},
                                                  buffer->as<float>(), 2.0F, 1000));
    ASSERT_TRUE(stream().synchronize());
  }
  for (const float value : read<float>(*buffer)) ASSERT_EQ(value, 65536.0F);
}

// NVRTC does part of its work under a lock of its own; how much is gained by threads is printed, not judged.
TEST(CudaGpuCompileTest, WhatThreadsGainIsShown) {
  const auto compiler = test_compiler();
  ASSERT_NE(compiler, nullptr);
  for (const int threads : {1, 2, 8}) {
    ModuleCache cache(compiler, {"", 1 << 30, threads});
    std::vector<ModuleCache::Future> futures;
    const double start = now_s();
    for (int i = 0; i < 32; ++i) {
      auto source = three_kernels("sm_90a");
      source.text += "// " + std::to_string(i);
      futures.push_back(cache.submit(source));
    }
    for (auto& future : futures) EXPECT_TRUE(future.get());
    std::cout << "32 compiles on " << threads << " threads: " << now_s() - start << " s\n";
  }
}

}  // namespace
}  // namespace moetune::cuda
