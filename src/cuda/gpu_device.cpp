#include "cuda/gpu_device.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace moetune::cuda {
namespace {

std::string uuid_text(const cu::Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

Status read_texts(const Driver& driver, cu::Device device, GpuDevice& gpu) {
  const auto& api = driver.api();
  std::array<char, 256> buffer{};
  MOETUNE_CHECK(
      driver.check(api.device_name(buffer.data(), static_cast<int>(buffer.size() - 1), device), "cuDeviceGetName"));
  gpu.name = buffer.data();
  buffer.fill(0);
  MOETUNE_CHECK(driver.check(api.device_pci_bus_id(buffer.data(), static_cast<int>(buffer.size() - 1), device),
                             "cuDeviceGetPCIBusId"));
  gpu.pci = buffer.data();
  cu::Uuid uuid{};
  MOETUNE_CHECK(driver.check(api.device_uuid(&uuid, device), "cuDeviceGetUuid"));
  gpu.uuid = uuid_text(uuid);
  return {};
}

Status read_numbers(const Driver& driver, cu::Device device, GpuDevice& gpu) {
  using Attribute = cu::DeviceAttribute;
  std::int64_t major = 0, minor = 0, clusters = 0;
  const std::array<std::pair<Attribute, std::int64_t*>, 14> wanted = {
      {{Attribute::compute_major, &major},
       {Attribute::compute_minor, &minor},
       {Attribute::multiprocessors, &gpu.multiprocessors},
       {Attribute::l2_bytes, &gpu.l2_bytes},
       {Attribute::max_shared_per_block_optin, &gpu.shared_per_block_bytes},
       {Attribute::max_shared_per_sm, &gpu.shared_per_sm_bytes},
       {Attribute::reserved_shared_per_block, &gpu.reserved_shared_per_block_bytes},
       {Attribute::max_registers_per_sm, &gpu.registers_per_sm},
       {Attribute::max_threads_per_sm, &gpu.threads_per_sm},
       {Attribute::max_blocks_per_sm, &gpu.blocks_per_sm},
       {Attribute::clock_rate_khz, &gpu.clock_khz},
       {Attribute::memory_clock_rate_khz, &gpu.memory_clock_khz},
       {Attribute::memory_bus_bits, &gpu.memory_bus_bits},
       {Attribute::cluster_launch, &clusters}}};
  for (const auto& [attribute, target] : wanted) {
    int value = 0;
    const int id = static_cast<int>(attribute);
    MOETUNE_CHECK(
        driver.check(driver.api().device_attribute(&value, id, device), fmt::format("cuDeviceGetAttribute({})", id)));
    *target = value;
  }
  std::size_t bytes = 0;
  MOETUNE_CHECK(driver.check(driver.api().device_total_memory(&bytes, device), "cuDeviceTotalMem"));
  gpu.memory_bytes = static_cast<std::int64_t>(bytes);
  gpu.compute_capability = fmt::format("{}.{}", major, minor);
  gpu.clusters = clusters != 0;
  return {};
}

}  // namespace

std::string GpuDevice::target() const {
  std::string digits;
  for (const char c : compute_capability)
    if (c != '.') digits += c;
  const bool has_own_features = compute_capability.size() > 3 || compute_capability.starts_with('9');
  return "sm_" + digits + (has_own_features ? "a" : "");
}

Result<std::vector<GpuDevice>> list_gpus(const Driver& driver) {
  int count = 0;
  MOETUNE_CHECK(driver.check(driver.api().device_count(&count), "cuDeviceGetCount"));
  std::vector<GpuDevice> gpus;
  for (int i = 0; i < count; ++i) {
    GpuDevice gpu;
    gpu.index = i;
    cu::Device device = 0;
    MOETUNE_CHECK(driver.check(driver.api().device_get(&device, i), fmt::format("cuDeviceGet({})", i)));
    MOETUNE_CHECK(read_texts(driver, device, gpu));
    MOETUNE_CHECK(read_numbers(driver, device, gpu));
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace moetune::cuda
