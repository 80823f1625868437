// Prefill kernels for all formats.
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

/// Whether a scale covers whole runs of `weights`.
bool covers(const WeightSpec& spec, std::int64_t k, std::int64_t weights) {
  return spec.block_k >= k || spec.block_k % weights == 0;
}

TileKernel pick_prefill(const WeightSpec& spec, std::int64_t k, const PrefillShape& shape) {
  switch (spec.format) {
    case WeightFormat::bf16:
      return prefill_kernel_for<PlainPanel<Bf16Weights>>(k, shape);
    case WeightFormat::fp16:
      return prefill_kernel_for<PlainPanel<Fp16Weights>>(k, shape);
    case WeightFormat::fp8_block:
      if (!covers(spec, k, kChunk)) break;
      [[fallthrough]];
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
      return prefill_kernel_for<Fp8Panel>(k, shape);
    case WeightFormat::mxfp8:
      return prefill_kernel_for<Mxfp8Panel>(k, shape);
#if HWY_CAP_GE256
    case WeightFormat::nvfp4:
      return prefill_kernel_for<NibblePanel<WeightFormat::nvfp4>>(k, shape);
    case WeightFormat::mxfp4:
      return prefill_kernel_for<NibblePanel<WeightFormat::mxfp4>>(k, shape);
    case WeightFormat::int4:
      if (covers(spec, k, 2 * kLanes)) return prefill_kernel_for<NibblePanel<WeightFormat::int4>>(k, shape);
      break;
#endif
    default:
      break;
  }
  return prefill_kernel_for<DequantizedPanel>(k, shape);
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetune {
HWY_EXPORT(pick_prefill);

TileKernel prefill_kernel(const WeightSpec& spec, std::int64_t k, const PrefillShape& shape) {
  return HWY_DYNAMIC_DISPATCH(pick_prefill)(spec, k, shape);
}

}  // namespace moetune
#endif
