// Decode kernels for E4M3 weights.
#include "cpu/tile_kernel.h"

// AVX3_DL adds nothing that these use.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/decode_fp8.cpp"
#include <hwy/foreach_target.h>

#include "cpu/float_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

/// No run function where a scale would change within a chunk.
TileKernel pick_fp8(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape) {
  if (spec.format == WeightFormat::mxfp8) return float_decode_kernel<MxScaled<Fp8Weights>>(k, shape);
  const bool fits = spec.format != WeightFormat::fp8_block || spec.block_k % kChunk == 0 || spec.block_k >= k;
  return fits ? float_decode_kernel<SegmentScaled<Fp8Weights>>(k, shape) : TileKernel{};
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetune {
HWY_EXPORT(pick_fp8);

TileKernel fp8_decode_kernel(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape) {
  return HWY_DYNAMIC_DISPATCH(pick_fp8)(spec, k, shape);
}

}  // namespace moetune
#endif
