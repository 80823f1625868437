#include "gpu/register.h"

#include "gpu/gpu_device.h"
#include "gpu/sm80_decode.h"
#include "gpu/sm80_tile.h"

namespace moetune {

void register_gpu(Registry& registry) {
  const auto runtime = std::make_shared<GpuRuntime>();
  registry.add(std::make_unique<NvidiaDevice>(runtime));
  registry.add(std::make_unique<Sm80Decode>(runtime));
  registry.add(std::make_unique<Sm80Tile>(runtime));
}

}  // namespace moetune
