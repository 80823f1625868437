// The part of NVML's C interface that is used here, as driver_api.h has the driver's ("NVML API reference",
// docs.nvidia.com/deploy/nvml-api). Apart from starting and finding a device every function may be absent or answer
// "not supported".
#pragma once

namespace moetune::cuda {

namespace nvml {
using Code = int;  ///< nvmlReturn_t; 0 is success
using Device = struct DeviceObject*;
constexpr int kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;
struct Memory {
  unsigned long long total = 0, free = 0, used = 0;  ///< bytes
};
struct Utilization {
  unsigned gpu = 0, memory = 0;  ///< percent of the last sampling period
};
}  // namespace nvml

struct NvmlApi {
  nvml::Code (*init)() = nullptr;
  nvml::Code (*shutdown)() = nullptr;
  const char* (*error_string)(nvml::Code code) = nullptr;
  nvml::Code (*driver_version)(char* text, unsigned length) = nullptr;
  nvml::Code (*device_count)(unsigned* count) = nullptr;
  nvml::Code (*device_by_index)(unsigned index, nvml::Device* device) = nullptr;
  nvml::Code (*device_by_pci)(const char* bus_id, nvml::Device* device) = nullptr;
  nvml::Code (*name)(nvml::Device device, char* text, unsigned length) = nullptr;
  nvml::Code (*uuid)(nvml::Device device, char* text, unsigned length) = nullptr;
  nvml::Code (*clock)(nvml::Device device, int type, unsigned* mhz) = nullptr;
  nvml::Code (*max_clock)(nvml::Device device, int type, unsigned* mhz) = nullptr;
  nvml::Code (*power)(nvml::Device device, unsigned* milliwatts) = nullptr;
  nvml::Code (*power_limit)(nvml::Device device, unsigned* milliwatts) = nullptr;
  nvml::Code (*energy)(nvml::Device device, unsigned long long* millijoules) = nullptr;
  nvml::Code (*temperature)(nvml::Device device, int sensor, unsigned* celsius) = nullptr;
  nvml::Code (*utilization)(nvml::Device device, nvml::Utilization* utilization) = nullptr;
  nvml::Code (*memory)(nvml::Device device, nvml::Memory* memory) = nullptr;
  nvml::Code (*throttle_reasons)(nvml::Device device, unsigned long long* bits) = nullptr;

  template <class Self, class Visitor>
  static void symbols(Self& self, Visitor&& visit) {
    visit("nvmlInit_v2", self.init, true);
    visit("nvmlShutdown", self.shutdown, true);
    visit("nvmlErrorString", self.error_string, true);
    visit("nvmlDeviceGetCount_v2", self.device_count, true);
    visit("nvmlDeviceGetHandleByIndex_v2", self.device_by_index, true);
    visit("nvmlDeviceGetHandleByPciBusId_v2", self.device_by_pci, true);
    visit("nvmlSystemGetDriverVersion", self.driver_version, false);
    visit("nvmlDeviceGetName", self.name, false);
    visit("nvmlDeviceGetUUID", self.uuid, false);
    visit("nvmlDeviceGetClockInfo", self.clock, false);
    visit("nvmlDeviceGetMaxClockInfo", self.max_clock, false);
    visit("nvmlDeviceGetPowerUsage", self.power, false);
    visit("nvmlDeviceGetEnforcedPowerLimit", self.power_limit, false);
    visit("nvmlDeviceGetTotalEnergyConsumption", self.energy, false);
    visit("nvmlDeviceGetTemperature", self.temperature, false);
    visit("nvmlDeviceGetUtilizationRates", self.utilization, false);
    visit("nvmlDeviceGetMemoryInfo", self.memory, false);
    // CUDA 12.2 renamed it to ...EventReasons and keeps this name.
    visit("nvmlDeviceGetCurrentClocksThrottleReasons", self.throttle_reasons, false);
  }
};

}  // namespace moetune::cuda
