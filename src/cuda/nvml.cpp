#include "cuda/nvml.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

namespace moetune::cuda {
namespace {

struct ThrottleBit {
  std::uint64_t bit;
  const char* name;
  bool slows;  ///< below what was asked for, by power or heat
};
constexpr std::array<ThrottleBit, 9> kThrottleBits = {{{0x1, "idle", false},
                                                       {0x2, "application_clocks", false},
                                                       {0x4, "power_cap", true},
                                                       {0x8, "hardware_slowdown", true},
                                                       {0x10, "sync_boost", false},
                                                       {0x20, "software_thermal", true},
                                                       {0x40, "hardware_thermal", true},
                                                       {0x80, "power_brake", true},
                                                       {0x100, "display_clocks", false}}};

std::int64_t narrow(std::uint64_t value) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(value < kMost ? value : kMost);
}

/// What one call tells, scaled; nothing where the library has no such function or the GPU does not support it.
template <class Value, class Function, class... Args>
std::optional<Value> ask(Function function, nvml::Device device, Args... args) {
  Value value{};
  if (function == nullptr || function(device, args..., &value) != 0) return std::nullopt;
  return value;
}

std::optional<std::int64_t> whole(const std::optional<unsigned>& value) {
  return value ? std::optional<std::int64_t>(*value) : std::nullopt;
}

template <class T>
std::optional<double> thousandth(const std::optional<T>& value) {
  return value ? std::optional<double>(static_cast<double>(*value) / 1e3) : std::nullopt;
}

template <class Function>
std::string text(Function function, nvml::Device device) {
  std::array<char, 128> buffer{};
  if (function == nullptr || function(device, buffer.data(), static_cast<unsigned>(buffer.size() - 1)) != 0) return {};
  return buffer.data();
}

}  // namespace

std::vector<std::string> throttle_names(std::uint64_t bits) {
  std::vector<std::string> names;
  for (const auto& known : kThrottleBits) {
    if ((bits & known.bit) != 0) names.emplace_back(known.name);
    bits &= ~known.bit;
  }
  for (std::uint64_t bit = 1; bits != 0; bit <<= 1) {
    if ((bits & bit) != 0) names.push_back(fmt::format("{:#x}", bit));
    bits &= ~bit;
  }
  return names;
}

bool is_throttled(std::uint64_t bits) {
  for (const auto& known : kThrottleBits)
    if (known.slows && (bits & known.bit) != 0) return true;
  return false;
}

Answer<std::shared_ptr<const Nvml>> Nvml::open() { return open(nvml_search(search_roots(Env::nvml))); }

Answer<std::shared_ptr<const Nvml>> Nvml::open(const LibrarySearch& search) {
  const auto nvml = std::shared_ptr<Nvml>(new Nvml);
  auto library = find_library(search, [&nvml](const DynamicLibrary& found) { return resolve(found, nvml->api_); });
  if (!library) return refuse(std::move(library).error());
  if (const auto status = nvml->check(nvml->api_.init(), "nvmlInit"); !status)
    return refuse({ReasonCode::driver, status.error().what, "an NVML that starts",
                   "see whether nvidia-smi works; after a driver update the machine must be restarted", ""});
  nvml->started_ = true;
  return nvml;
}

Nvml::~Nvml() {
  if (started_) (void)api_.shutdown();
}

Status Nvml::check(nvml::Code code, const std::string& call) const {
  if (code == 0) return {};
  const char* words = api_.error_string(code);
  return fail(fmt::format("{}: {} ({})", call, words != nullptr ? words : "unknown error", code));
}

std::string Nvml::driver_version() const {
  std::array<char, 128> buffer{};
  if (api_.driver_version == nullptr) return {};
  if (api_.driver_version(buffer.data(), static_cast<unsigned>(buffer.size() - 1)) != 0) return {};
  return buffer.data();
}

Result<int> Nvml::count() const {
  unsigned count = 0;
  MOETUNE_CHECK(check(api_.device_count(&count), "nvmlDeviceGetCount"));
  return static_cast<int>(count);
}

Result<GpuTelemetry> Nvml::read(const std::string& pci) const {
  nvml::Device device = nullptr;
  MOETUNE_CHECK(check(api_.device_by_pci(pci.c_str(), &device), "nvmlDeviceGetHandleByPciBusId(" + pci + ")"));
  return read(device);
}

Result<GpuTelemetry> Nvml::read(int index) const {
  nvml::Device device = nullptr;
  MOETUNE_CHECK(check(api_.device_by_index(static_cast<unsigned>(index), &device),
                      fmt::format("nvmlDeviceGetHandleByIndex({})", index)));
  return read(device);
}

GpuTelemetry Nvml::read(nvml::Device device) const {
  GpuTelemetry now;
  now.name = text(api_.name, device);
  now.uuid = text(api_.uuid, device);
  now.sm_mhz = whole(ask<unsigned>(api_.clock, device, nvml::kClockSm));
  now.sm_max_mhz = whole(ask<unsigned>(api_.max_clock, device, nvml::kClockSm));
  now.memory_mhz = whole(ask<unsigned>(api_.clock, device, nvml::kClockMemory));
  now.memory_max_mhz = whole(ask<unsigned>(api_.max_clock, device, nvml::kClockMemory));
  now.power_w = thousandth(ask<unsigned>(api_.power, device));
  now.power_limit_w = thousandth(ask<unsigned>(api_.power_limit, device));
  now.energy_j = thousandth(ask<unsigned long long>(api_.energy, device));
  now.temperature_c = whole(ask<unsigned>(api_.temperature, device, nvml::kTemperatureGpu));
  if (const auto busy = ask<nvml::Utilization>(api_.utilization, device)) {
    now.gpu_busy_percent = busy->gpu;
    now.memory_busy_percent = busy->memory;
  }
  if (const auto memory = ask<nvml::Memory>(api_.memory, device)) {
    now.memory_used_bytes = narrow(memory->used);
    now.memory_total_bytes = narrow(memory->total);
  }
  if (const auto bits = ask<unsigned long long>(api_.throttle_reasons, device)) {
    now.throttle_bits = narrow(*bits);
    now.throttle = throttle_names(*bits);
  }
  return now;
}

}  // namespace moetune::cuda
