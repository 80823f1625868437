// What the GPU backends of one process share: CUDA's libraries, the context, the cache of compiled kernels, and the
// weights on the device. Everything is opened when it is first asked for, so that a process that only lists backends
// touches no CUDA.
#pragma once

#include <memory>
#include <optional>

#include "cuda/module.h"
#include "cuda/module_cache.h"
#include "gpu/pack.h"
#include "kernels/abi/moe_args.h"

namespace moetune {

/// A repacked stack of expert matrices on the device.
struct DeviceStack {
  cuda::DeviceBuffer data, scales, row_scale, bias;
  MoeWeights view{};
};

/// A layer's weights on the device.
struct DeviceLayer {
  DeviceStack up, down;
};

/// Not thread-safe. The context is current on the thread that first asked for it.
class GpuRuntime {
 public:
  /// The driver, or why there is none.
  [[nodiscard]] const cuda::Answer<std::shared_ptr<const cuda::Driver>>& driver();
  /// The run-time compiler, or why there is none.
  [[nodiscard]] const cuda::Answer<std::shared_ptr<const cuda::Compiler>>& compiler();
  /// Compiled kernels, in memory and in kernel_cache_folder(). Only where there is a compiler.
  [[nodiscard]] cuda::ModuleCache& kernels();
  /// The context of the first GPU that the driver shows.
  [[nodiscard]] Result<cuda::ContextRef> context();
  /// Compiled, loaded.
  [[nodiscard]] Result<cuda::Module> load(const cuda::KernelSource& source);
  /// The layer repacked and uploaded; the same as an open session's where one has it.
  [[nodiscard]] Result<std::shared_ptr<const DeviceLayer>> weights(const Layer& layer);

 private:
  std::optional<cuda::Answer<std::shared_ptr<const cuda::Driver>>> driver_;
  std::optional<cuda::Answer<std::shared_ptr<const cuda::Compiler>>> compiler_;
  std::unique_ptr<cuda::ModuleCache> kernels_;
  cuda::ContextRef context_;
  const Layer* layer_ = nullptr;  ///< whose weights `layer_weights_` are
  std::weak_ptr<const DeviceLayer> layer_weights_;
};

}  // namespace moetune
