// Prefill kernels with panels of floats, for all formats.
#include "cpu/tile_kernel.h"

// AVX3_DL adds nothing that these use.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/prefill_kernel.cpp"
#include <hwy/foreach_target.h>

#include "cpu/prefill-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

TileKernel pick_prefill(const WeightSpec& spec, std::int64_t k, const PrefillShape& shape) {
  const TileKernel kernel = prefill_kernel_of<float>(spec, k, shape);
  return kernel.run != nullptr ? kernel : prefill_kernel_for<DequantizedPanel, float>(k, shape);
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetune {
HWY_EXPORT(pick_prefill);

TileKernel prefill_kernel(const WeightSpec& spec, std::int64_t k, const PrefillShape& shape) {
  if (shape.bf16_dot)
    if (const TileKernel kernel = bf16_dot_prefill_kernel(spec, k, shape); kernel.run != nullptr) return kernel;
  return HWY_DYNAMIC_DISPATCH(pick_prefill)(spec, k, shape);
}

}  // namespace moetune
#endif
