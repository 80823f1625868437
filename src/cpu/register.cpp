#include "cpu/register.h"

#include "cpu/cpu_backend.h"
#include "cpu/cpu_device.h"

namespace moetune {

void register_cpu(Registry& registry) {
  registry.add(std::make_unique<CpuDevice>());
  registry.add(std::make_unique<CpuDecode>());
  registry.add(std::make_unique<CpuPrefill>());
}

}  // namespace moetune
