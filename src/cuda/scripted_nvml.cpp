// A library with some of NVML's functions and no device behind them, for tests. What it lacks (energy, utilisation) and
// refuses (temperature) is what real boards lack and refuse.
#include <cstring>

#include "cuda/nvml_api.h"

using namespace moetune::cuda;

namespace {
constexpr nvml::Code kNotFound = 6, kNotSupported = 3;
}

extern "C" {
#define EXPORT __attribute__((visibility("default")))
EXPORT nvml::Code nvmlInit_v2() { return 0; }
EXPORT nvml::Code nvmlShutdown() { return 0; }
EXPORT const char* nvmlErrorString(nvml::Code code) { return code == kNotFound ? "Not Found" : "Not Supported"; }
EXPORT nvml::Code nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::strncpy(text, "580.95.05", length);
  return 0;
}
EXPORT nvml::Code nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return 0;
}
EXPORT nvml::Code nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml::Device* device) {
  *device = reinterpret_cast<nvml::Device>(0x10UL);
  return index == 0 ? 0 : kNotFound;
}
EXPORT nvml::Code nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvml::Device* device) {
  *device = reinterpret_cast<nvml::Device>(0x10UL);
  return std::strcmp(bus_id, "0000:18:00.0") == 0 ? 0 : kNotFound;
}
EXPORT nvml::Code nvmlDeviceGetName(nvml::Device, char* text, unsigned length) {
  std::strncpy(text, "Scripted GPU", length);
  return 0;
}
EXPORT nvml::Code nvmlDeviceGetClockInfo(nvml::Device, int type, unsigned* mhz) {
  *mhz = type == nvml::kClockSm ? 1755 : 3201;
  return 0;
}
EXPORT nvml::Code nvmlDeviceGetPowerUsage(nvml::Device, unsigned* milliwatts) {
  *milliwatts = 512'345;
  return 0;
}
EXPORT nvml::Code nvmlDeviceGetEnforcedPowerLimit(nvml::Device, unsigned* milliwatts) {
  *milliwatts = 700'000;
  return 0;
}
EXPORT nvml::Code nvmlDeviceGetTemperature(nvml::Device, int, unsigned*) { return kNotSupported; }
EXPORT nvml::Code nvmlDeviceGetMemoryInfo(nvml::Device, nvml::Memory* memory) {
  *memory = {150'000'000'000ULL, 149'000'000'000ULL, 1'000'000'000ULL};
  return 0;
}
EXPORT nvml::Code nvmlDeviceGetCurrentClocksThrottleReasons(nvml::Device, unsigned long long* bits) {
  *bits = 0x4 | 0x40 | 0x1000;
  return 0;
}
}
