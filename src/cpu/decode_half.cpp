// Decode kernels for bf16, fp16, and for whatever is dequantised row by row.
#include "cpu/tile_kernel.h"

// AVX3_DL adds nothing that these use.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/decode_half.cpp"
#include <hwy/foreach_target.h>

#include "cpu/float_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

TileKernel pick_half(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape) {
  switch (spec.format) {
    case WeightFormat::bf16:
      return float_decode_kernel<SegmentScaled<Bf16Weights>>(k, shape);
    case WeightFormat::fp16:
      return float_decode_kernel<SegmentScaled<Fp16Weights>>(k, shape);
    default:
      return float_decode_kernel<DequantizedRows>(k, shape);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetune {
HWY_EXPORT(pick_half);

TileKernel half_decode_kernel(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape) {
  return HWY_DYNAMIC_DISPATCH(pick_half)(spec, k, shape);
}

}  // namespace moetune
#endif
