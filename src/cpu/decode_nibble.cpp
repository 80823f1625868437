// Decode kernels for four-bit weights.
#include "cpu/tile_kernel.h"

// AVX3 without VNNI gains little over AVX2.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/decode_nibble.cpp"
#include <hwy/foreach_target.h>

#include "cpu/nibble_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

/// No run function where the instruction set lacks products of bytes, or groups of int4 are not whole 128-bit blocks.
TileKernel pick_nibble(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3_DL
  if (spec.format == WeightFormat::nvfp4) return nibble_decode_kernel<Nvfp4Weights>(k, shape);
  if (spec.format == WeightFormat::mxfp4) return nibble_decode_kernel<Mxfp4Weights>(k, shape);
  const bool fits = spec.block_k >= k || (spec.block_k >= 32 && (spec.block_k & (spec.block_k - 1)) == 0);
  if (!fits) return {};
  return spec.zero_point ? nibble_decode_kernel<Int4Weights<true>>(k, shape)
                         : nibble_decode_kernel<Int4Weights<false>>(k, shape);
#else
  (void)spec, (void)k, (void)shape;
  return {};
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetune {
HWY_EXPORT(pick_nibble);

TileKernel nibble_decode_kernel(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape) {
  return HWY_DYNAMIC_DISPATCH(pick_nibble)(spec, k, shape);
}

}  // namespace moetune
#endif
