// Prefill kernels with panels of bf16 for processors that multiply pairs of them (AVX512_BF16).
//
// Weights that are no bf16 numbers (E4M3 times a float, int4) are rounded to it, and so are the intermediates: one
// rounding more at each projection than with floats, as many as layer_tolerance (moe/reference.h) counts.
#include "cpu/instructions.h"
#include "cpu/tile_kernel.h"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/prefill_bf16_dot.cpp"
#include <hwy/foreach_target.h>

#include "cpu/prefill-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

TileKernel pick_bf16_dot([[maybe_unused]] const WeightSpec& spec, [[maybe_unused]] std::int64_t k,
                         [[maybe_unused]] const PrefillShape& shape) {
#if HWY_TARGET == HWY_AVX3_DL
  if (has_bf16_dot()) return prefill_kernel_of<std::uint16_t>(spec, k, shape);
#endif
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetune {
HWY_EXPORT(pick_bf16_dot);

TileKernel bf16_dot_prefill_kernel(const WeightSpec& spec, std::int64_t k, const PrefillShape& shape) {
  return HWY_DYNAMIC_DISPATCH(pick_bf16_dot)(spec, k, shape);
}

}  // namespace moetune
#endif
