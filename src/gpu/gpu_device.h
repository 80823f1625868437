// NVIDIA GPUs as a place to run: finds those of this machine and measures what they can do at best.
#pragma once

#include <memory>
#include <utility>

#include "backend/backend.h"
#include "gpu/gpu_runtime.h"

namespace moetune {

class NvidiaDevice : public Device {
 public:
  explicit NvidiaDevice(std::shared_ptr<GpuRuntime> runtime) : runtime_(std::move(runtime)) {}
  [[nodiscard]] TargetKind kind() const override { return TargetKind::gpu; }
  /// In the driver's order; none where there is no driver. Numbers of the data sheet come from data/gpus.toml.
  [[nodiscard]] std::vector<Target> targets() const override;
  /// Of the first GPU: cold reads by size, a copy, and the matrix peak of the widest bf16 instruction that there are
  /// kernels for (wgmma on 9.0, mma.sync elsewhere). fp8_tflops stays 0: nothing here multiplies in fp8.
  [[nodiscard]] Result<Ceilings> measure(const Target& target) const override;

 private:
  std::shared_ptr<GpuRuntime> runtime_;
};

}  // namespace moetune
