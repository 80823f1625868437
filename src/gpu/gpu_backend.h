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

/// One projection in a form of family sm80 (kernels/sm80/sm80_NAME.cuh), with its numbers.
struct ProjectionForm {
  std::string name;    ///< "decode"
  std::string shape;   ///< the family's struct that derives sizes from a Config: "DecodeShape"
  std::string config;  ///< the Config's own numbers: "kTokenTiles = 1, kRowTiles = 2, …"
  std::int64_t threads = 0, shared_bytes = 0, blocks_per_sm = 1;
};
/// Its kernel for the first (`up`) or the second projection. The compiler holds threads and shared_bytes against what
/// the device code counts.
[[nodiscard]] ProjectionKernel projection_kernel(const ProjectionForm& form, bool up, const Problem& problem,
                                                 const Target& target);

/// Limits of a multiprocessor, 8.0 to 12.1: threads are those of 8.6, 8.9 and 12.x, others have 2048.
inline constexpr std::int64_t kRegistersOfSm = 65536, kThreadsOfSm = 1536;
/// What a thread gets where that many blocks of that many threads share a multiprocessor.
[[nodiscard]] std::int64_t registers_of_thread(std::int64_t threads, std::int64_t blocks);

/// 90 for compute capability "9.0"; 0 where it cannot be read.
[[nodiscard]] int capability_number(const Target& target);

/// Shared memory that a block may use; what every GPU from 8.0 on has where the target does not say.
[[nodiscard]] std::int64_t shared_limit(const Target& target);

}  // namespace moetune
