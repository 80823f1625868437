// What all GPU backends share: a layer is four kernels (align, first projection, second projection, combine), of which
// a family brings the two projections.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "gpu/gpu_runtime.h"
#include "gpu/kernel_source.h"

namespace moetune {

/// A projection's kernel `entry` (extern "C", arguments MoeCall, MoeWeights, float alpha, float limit) and how it is
/// launched: with as many blocks as fit on the device at once.
struct ProjectionKernel {
  cuda::KernelSource source;
  std::string entry;
  std::int64_t threads = 0;
  std::int64_t shared_bytes = 0;  ///< dynamic
};

/// A config made concrete.
struct LayerPlan {
  ProjectionKernel up, down;
  std::int64_t tile_tokens = 0;  ///< of a work item, see MoeTile
};

class GpuBackend : public Backend {
 public:
  explicit GpuBackend(std::shared_ptr<GpuRuntime> runtime) : runtime_(std::move(runtime)) {}

  [[nodiscard]] std::string revision() const override;
  [[nodiscard]] Reasons why_not(const Problem& problem, const Target& target) const override;
  [[nodiscard]] std::optional<Reasons> compile(const Problem& problem, const Target& target) const override;
  [[nodiscard]] Result<std::unique_ptr<Session>> open(const Problem& problem, const Layer& layer,
                                                      const Target& target) const override;

  /// The kernels of a config that is in the space.
  [[nodiscard]] virtual LayerPlan plan(const Problem& problem, const Target& target, const Config& config) const = 0;

 private:
  std::shared_ptr<GpuRuntime> runtime_;
};

/// align_pairs and combine_pairs as the kernels "moe_align" (kAlignThreads, one block) and "moe_combine".
inline constexpr int kAlignThreads = 1024, kCombineThreads = 256;
[[nodiscard]] cuda::KernelSource shared_kernels(const Target& target);

/// What NvidiaDevice measures with: ceiling_read, ceiling_copy, ceiling_multiply.
[[nodiscard]] cuda::KernelSource ceiling_kernels(const Target& target);

/// The text of one projection's translation unit. `header`: the family's file; `config`: the members of its Config;
/// `call`: the expression that runs it; `check`: what must hold of the numbers that the host computed.
struct ProjectionText {
  std::string header, config, call, check;
  std::int64_t threads = 0, blocks_per_sm = 1;
};
[[nodiscard]] cuda::KernelSource projection_source(const std::string& name, const ProjectionText& text,
                                                   const Problem& problem, const Target& target);

/// 90 for compute capability "9.0"; 0 where it cannot be read.
[[nodiscard]] int capability_number(const Target& target);

/// Shared memory that a block may use; what every GPU from 8.0 on has where the target does not say.
[[nodiscard]] std::int64_t shared_limit(const Target& target);

}  // namespace moetune
