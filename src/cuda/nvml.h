// Live readings of a GPU by NVML, which needs no CUDA context and does not disturb what runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cuda/answer.h"
#include "cuda/library_search.h"
#include "cuda/nvml_api.h"

namespace moetune::cuda {

/// One reading. What the GPU or the driver does not tell is absent.
struct GpuTelemetry {
  std::string name, uuid;
  std::optional<std::int64_t> sm_mhz, sm_max_mhz, memory_mhz, memory_max_mhz;
  std::optional<double> power_w;  ///< an average over about a second on most chips
  std::optional<double> power_limit_w;
  std::optional<double> energy_j;  ///< since the driver was loaded
  std::optional<std::int64_t> temperature_c;
  std::optional<std::int64_t>
      gpu_busy_percent;  ///< of the last period (up to a second): time with any kernel running, however small
  std::optional<std::int64_t> memory_busy_percent;  ///< the same for any memory transfer
  std::optional<std::int64_t> memory_used_bytes, memory_total_bytes;
  std::optional<std::int64_t> throttle_bits;  ///< as NVML has them
  std::vector<std::string> throttle;          ///< their names (throttle_names)

  bool operator==(const GpuTelemetry&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("name", self.name);
    visit("uuid", self.uuid);
    visit("sm_mhz", self.sm_mhz);
    visit("sm_max_mhz", self.sm_max_mhz);
    visit("memory_mhz", self.memory_mhz);
    visit("memory_max_mhz", self.memory_max_mhz);
    visit("power_w", self.power_w);
    visit("power_limit_w", self.power_limit_w);
    visit("energy_j", self.energy_j);
    visit("temperature_c", self.temperature_c);
    visit("gpu_busy_percent", self.gpu_busy_percent);
    visit("memory_busy_percent", self.memory_busy_percent);
    visit("memory_used_bytes", self.memory_used_bytes);
    visit("memory_total_bytes", self.memory_total_bytes);
    visit("throttle_bits", self.throttle_bits);
    visit("throttle", self.throttle);
  }
};

/// Names of what holds the clocks down, for NVML's bits: "idle", "application_clocks", "power_cap",
/// "hardware_slowdown", "sync_boost", "software_thermal", "hardware_thermal", "power_brake", "display_clocks"; a bit
/// without a name as "0x400".
[[nodiscard]] std::vector<std::string> throttle_names(std::uint64_t bits);
/// Whether the bits say that the chip runs slower than asked for, because of power or heat. Being idle or set to fixed
/// clocks does not count.
[[nodiscard]] bool is_throttled(std::uint64_t bits);

class Nvml {
 public:
  [[nodiscard]] static Answer<std::shared_ptr<const Nvml>> open();
  [[nodiscard]] static Answer<std::shared_ptr<const Nvml>> open(const LibrarySearch& search);
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  /// "580.159.04"; empty where it does not say.
  [[nodiscard]] std::string driver_version() const;
  [[nodiscard]] Result<int> count() const;
  /// Of the GPU at a PCI bus id as the driver and NVML write it ("00000000:18:00.0", GpuDevice::pci).
  [[nodiscard]] Result<GpuTelemetry> read(const std::string& pci) const;
  /// Of the GPU that NVML counts as number `index`, which CUDA may count differently.
  [[nodiscard]] Result<GpuTelemetry> read(int index) const;

 private:
  Nvml() = default;
  [[nodiscard]] GpuTelemetry read(nvml::Device device) const;
  [[nodiscard]] Status check(nvml::Code code, const std::string& call) const;
  NvmlApi api_;
  bool started_ = false;
};

}  // namespace moetune::cuda
