#include "cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cuda/context.h"
#include "cuda/gpu_device.h"
#include "cuda/nvml.h"
#include "cuda/test_scripted.h"

namespace moetune::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SearchRoots named(const std::string& path) {
  SearchRoots roots;
  roots.named = path;
  return roots;
}

TEST(Driver, AbsentIsAReason) {
  const auto driver = Driver::open(driver_search(named("/nowhere/libcuda.so.1")));
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ReasonCode::driver);
  EXPECT_THAT(driver.error().have, HasSubstr("/nowhere/libcuda.so.1"));
  EXPECT_THAT(driver.error().hint, HasSubstr("driver"));
}

TEST(Driver, ALibraryThatIsNoDriverIsNamedWithWhatItLacks) {
  const auto driver = Driver::open(driver_search(named("libm.so.6")));
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ReasonCode::driver);
  EXPECT_THAT(driver.error().have, HasSubstr("libm.so.6: it has no cuInit, cuDriverGetVersion"));
}

TEST(Driver, TooOldSaysBothVersions) {
  ScriptedDriver::get().reset(11080);
  const auto driver = Driver::open(driver_search(named(ScriptedDriver::path())));
  ASSERT_FALSE(driver);
  EXPECT_THAT(driver.error().have, HasSubstr("CUDA 11.8"));
  EXPECT_THAT(driver.error().have, HasSubstr("12.0"));
  EXPECT_THAT(driver.error().have, HasSubstr("too old"));
}

TEST(Driver, NoGpuIsToldApartFromNoDriver) {
  ScriptedDriver::get().reset(13000, 0);
  const auto driver = Driver::open(driver_search(named(ScriptedDriver::path())));
  ASSERT_FALSE(driver);
  EXPECT_THAT(driver.error().have, HasSubstr("CUDA_ERROR_NO_DEVICE (100)"));
  EXPECT_THAT(driver.error().hint, HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(Driver, OpensAndSaysWhatItSupports) {
  const auto driver = ScriptedDriver::get().open();
  ASSERT_NE(driver, nullptr);
  EXPECT_EQ(driver->version(), 13000);
  EXPECT_EQ(driver->version_text(), "13.0");
}

TEST(Driver, ErrorsHaveTheCallTheNameAndTheWords) {
  const auto driver = ScriptedDriver::get().open();
  ASSERT_NE(driver, nullptr);
  EXPECT_TRUE(driver->check(cu::kSuccess, "cuAnything"));
  const auto lost = driver->check(cu::kIllegalAddress, "cuStreamSynchronize");
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().what,
            "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered");
  EXPECT_EQ(lost.error().kind, ErrorKind::device_lost);
  const auto memory = driver->check(cu::kOutOfMemory, "cuMemAlloc(5 bytes)");
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().kind, ErrorKind::out_of_memory);
  const auto unknown = driver->check(12345, "cuAnything");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().what, "cuAnything: unknown error (12345): the driver has no words for it");
  EXPECT_EQ(unknown.error().kind, ErrorKind::other);
}

// Which codes leave the context unusable is what cuda.h says of each: "the context cannot be used anymore", "the
// process must be terminated and relaunched".
TEST(Driver, StickyCodes) {
  for (const cu::Code code : {700, 702, 710, 714, 715, 716, 717, 718, 719, 214, 220, 721})
    EXPECT_TRUE(is_sticky(code)) << code;
  for (const cu::Code code : {0, 1, 2, 100, 200, 209, 218, 222, 400, 500, 600, 701, 720, 801, 900, 907, 912})
    EXPECT_FALSE(is_sticky(code)) << code;
}

TEST(GpuDevice, ListsWhatTheDriverTells) {
  const auto driver = ScriptedDriver::get().open(2);
  ASSERT_NE(driver, nullptr);
  const auto gpus = list_gpus(*driver);
  ASSERT_TRUE(gpus) << gpus.error().what;
  ASSERT_EQ(gpus->size(), 2U);
  const auto& gpu = gpus->front();
  EXPECT_EQ(gpu.name, "Scripted GPU");
  EXPECT_EQ(gpu.uuid, "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
  EXPECT_EQ(gpus->back().uuid.substr(0, 8), "GPU-a1a2");
  EXPECT_EQ(gpu.pci, "0000:18:00.0");
  EXPECT_EQ(gpu.compute_capability, "9.0");
  EXPECT_EQ(gpu.target(), "sm_90a");
  EXPECT_EQ(gpu.memory_bytes, std::int64_t{1} << 37);
  // The scripted driver answers an attribute with its number in cuda.h.
  EXPECT_EQ(gpu.multiprocessors, 16);
  EXPECT_EQ(gpu.shared_per_block_bytes, 97);
  EXPECT_EQ(gpu.shared_per_sm_bytes, 81);
  EXPECT_EQ(gpu.reserved_shared_per_block_bytes, 111);
  EXPECT_EQ(gpu.registers_per_sm, 82);
  EXPECT_EQ(gpu.l2_bytes, 38);
  EXPECT_EQ(gpu.threads_per_sm, 39);
  EXPECT_EQ(gpu.blocks_per_sm, 106);
  EXPECT_TRUE(gpu.clusters);
  EXPECT_EQ(to_json(gpu)["compute_capability"], Json("9.0"));
}

TEST(GpuDevice, TheTargetHasTheChipsOwnFeatures) {
  GpuDevice gpu;
  for (const auto& [capability, target] : std::vector<std::pair<std::string, std::string>>{
           {"8.0", "sm_80"}, {"8.9", "sm_89"}, {"9.0", "sm_90a"}, {"10.3", "sm_103a"}, {"12.0", "sm_120a"}}) {
    gpu.compute_capability = capability;
    EXPECT_EQ(gpu.target(), target);
  }
}

TEST(Nvml, AbsentIsAReason) {
  const auto nvml = Nvml::open(nvml_search(named("/nowhere/libnvidia-ml.so.1")));
  ASSERT_FALSE(nvml);
  EXPECT_EQ(nvml.error().code, ReasonCode::driver);
}

TEST(Nvml, ReadsWhatThereIsAndLeavesOutTheRest) {
  const auto nvml = Nvml::open(nvml_search(named(CUDA_SCRIPTED_NVML)));
  ASSERT_TRUE(nvml) << nvml.error().have;
  EXPECT_EQ((*nvml)->driver_version(), "580.95.05");
  EXPECT_EQ((*nvml)->count(), 1);
  const auto now = (*nvml)->read("0000:18:00.0");
  ASSERT_TRUE(now) << now.error().what;
  EXPECT_EQ(now->name, "Scripted GPU");
  EXPECT_EQ(now->sm_mhz, 1755);
  EXPECT_EQ(now->memory_mhz, 3201);
  EXPECT_EQ(now->power_w, 512.345);
  EXPECT_EQ(now->power_limit_w, 700.0);
  EXPECT_EQ(now->memory_used_bytes, 1'000'000'000);
  EXPECT_EQ(now->temperature_c, std::nullopt);  // refused
  EXPECT_EQ(now->energy_j, std::nullopt);       // no such function
  EXPECT_EQ(now->gpu_busy_percent, std::nullopt);
  EXPECT_THAT(now->throttle, ElementsAre("power_cap", "hardware_thermal", "0x1000"));
  EXPECT_EQ((*nvml)->read(0), now);
  const auto absent = (*nvml)->read("0000:99:00.0");
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().what, HasSubstr("0000:99:00.0"));
  EXPECT_THAT(absent.error().what, HasSubstr("Not Found (6)"));
}

// The bits are NVML's nvmlClocksThrottleReason… constants.
TEST(Nvml, ThrottleBitsHaveNames) {
  EXPECT_THAT(throttle_names(0), IsEmpty());
  EXPECT_THAT(throttle_names(0x1), ElementsAre("idle"));
  EXPECT_THAT(throttle_names(0x1ff),
              ElementsAre("idle", "application_clocks", "power_cap", "hardware_slowdown", "sync_boost",
                          "software_thermal", "hardware_thermal", "power_brake", "display_clocks"));
  EXPECT_THAT(throttle_names(std::uint64_t{1} << 63), ElementsAre("0x8000000000000000"));
  EXPECT_FALSE(is_throttled(0x1 | 0x2 | 0x10 | 0x100));
  for (const std::uint64_t bit : {0x4U, 0x8U, 0x20U, 0x40U, 0x80U}) EXPECT_TRUE(is_throttled(bit | 0x1));
}

}  // namespace
}  // namespace moetune::cuda
