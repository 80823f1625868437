// Repacked weights as operands of mma.m16n8k16: what a lane holds of a 16 × 64 piece of a matrix, format by format.
//
// A chunk is 16 rows × 64 columns. Lane l holds rows 2r and 2r+1 (r = l / 4) and columns 16q … 16q+15 (q = l % 4). The
// order of rows and columns inside a product is free as long as both operands agree, and this one makes everything
// wide: a lane's weights are consecutive, one NVFP4 scale covers exactly what a lane holds of a row, a lane's
// activations are 32 consecutive bytes, and two consecutive rows of a result lie in one lane. Step s (0 … 3) of a chunk
// multiplies columns 16q+4s … 16q+4s+3: the first two are the operand's columns 2q, 2q+1, the other two its columns
// 2q+8, 2q+9; row 2r is its row r, row 2r+1 its row r+8.
//
// Bits of a lane's units (16 bytes each, words x y z w; c0 … c3 the four columns of a step):
//   bf16   unit s:  x = row 2r c0 c1, y = row 2r+1 c0 c1, z = row 2r c2 c3, w = row 2r+1 c2 c3
//   8 bit  unit u, steps 2u, 2u+1: x, y = rows 2r, 2r+1 of step 2u; z, w of step 2u+1; bytes of a word, lowest first:
//   c2 c0 c3 c1 e2m1   one unit: x, y = rows 2r, 2r+1 of steps 0, 1; z, w of steps 2, 3. A word holds four pairs of
//   columns (step a: c0 c1, c2 c3; step b
//          the same), the first of a pair in bits 0-15, the other in bits 16-31. Sign and magnitude of pair p lie, in
//          its half, at bits 15, 8-6 | 12, 5-3 | 9, 2-0 | 14, 13 11 10, so that shifts of 0, 3 and 6 bring three of
//          four pairs to where bf16 has its sign, two lowest exponent bits and highest fraction bit.
//   int4   the same words and pairs; pair p at bits 4p … 4p+3 of its half
#pragma once

#include "abi/moe_args.h"
#include "common/types.cuh"
#include "ptx/convert.cuh"
#include "ptx/memory.cuh"

namespace moetune {

enum class Format { bf16, fp8, fp8_block, mxfp8, nvfp4, mxfp4, int4, int4_zero, int4_group32, int4_group32_zero };

/// Storage of one format. kUnits: 16-byte units of a lane and chunk. kScaleColumns: scales along a chunk (0: none
/// inside the loop).
template <Format kFormat>
struct FormatTraits;
template <>
struct FormatTraits<Format::bf16> {
  static constexpr int kUnits = 4, kScaleColumns = 0, kScaleBytes = 0;
};
template <>
struct FormatTraits<Format::fp8> {
  static constexpr int kUnits = 2, kScaleColumns = 0, kScaleBytes = 0;
};
template <>
struct FormatTraits<Format::fp8_block> {  // one float a tile and chunk, applied to the accumulators
  static constexpr int kUnits = 2, kScaleColumns = 0, kScaleBytes = 0;
};
template <>
struct FormatTraits<Format::mxfp8> {
  static constexpr int kUnits = 2, kScaleColumns = 2, kScaleBytes = 2;
};
template <>
struct FormatTraits<Format::nvfp4> {
  static constexpr int kUnits = 1, kScaleColumns = 4, kScaleBytes = 2;
};
template <>
struct FormatTraits<Format::mxfp4> {
  static constexpr int kUnits = 1, kScaleColumns = 2, kScaleBytes = 2;
};
template <>
struct FormatTraits<Format::int4> {  // groups of 64 columns or a multiple; bf16 scales of the two rows
  static constexpr int kUnits = 1, kScaleColumns = 1, kScaleBytes = 4;
};
template <>
struct FormatTraits<Format::int4_zero> {  // the same, then -(128 + zero point) of the two rows in bf16
  static constexpr int kUnits = 1, kScaleColumns = 1, kScaleBytes = 8;
};
template <>
struct FormatTraits<Format::int4_group32> {
  static constexpr int kUnits = 1, kScaleColumns = 2, kScaleBytes = 4;
};
template <>
struct FormatTraits<Format::int4_group32_zero> {
  static constexpr int kUnits = 1, kScaleColumns = 2, kScaleBytes = 8;
};
template <Format kFormat>
constexpr bool kIsInt4 = kFormat == Format::int4 || kFormat == Format::int4_zero || kFormat == Format::int4_group32 ||
                         kFormat == Format::int4_group32_zero;

/// The lane's scales of one chunk as loaded; what they mean is prepare_scale's business.
struct RawScale {
  u32 a = 0, b = 0;
};

/// Scales lie as [row tiles][chunks][kScaleColumns][8 row pairs][kScaleBytes].
template <Format kFormat>
__device__ __forceinline__ RawScale load_scale(const u8* scales, i64 tile_chunk, int lane) {
  using Traits = FormatTraits<kFormat>;
  RawScale raw;
  if constexpr (Traits::kScaleColumns > 0) {
    const int column = (lane % 4) * Traits::kScaleColumns / 4;
    const u8* at = scales + ((tile_chunk * Traits::kScaleColumns + column) * 8 + lane / 4) * Traits::kScaleBytes;
    if constexpr (Traits::kScaleBytes == 2) {
      raw.a = ptx::load_stream_u16(at);
    } else {
      const u32* words = reinterpret_cast<const u32*>(at);
      raw.a = words[0];
      if constexpr (Traits::kScaleBytes == 8) raw.b = words[1];
    }
  } else if constexpr (kFormat == Format::fp8_block) {
    raw.a = reinterpret_cast<const u32*>(scales)[tile_chunk];
  }
  return raw;
}

/// Multipliers of the lane's two rows, each twice in a register, ready for multiply_bf16x2; and int4's zero points.
struct LaneScale {
  u32 row0 = 0, row1 = 0, zero0 = 0, zero1 = 0;
};

__device__ __forceinline__ u32 both_low(u32 v) { return __byte_perm(v, v, 0x1010); }
__device__ __forceinline__ u32 both_high(u32 v) { return __byte_perm(v, v, 0x3232); }

// Powers of two that bring the shifted bits back to their value. bf16 whose exponent field holds e4m3's is the value ·
// 2^-120; whose field holds e2m1's, the value · 2^-126. Where the product with a group scale would leave bf16's range
// the rest is left to the accumulator: MoeWeights::row_scale carries 2^9 for NVFP4 and 2^64 for MXFP4 (gpu/pack.cpp
// multiplies it in).
constexpr u32 kTwoTo120 = 0x7B807B80U;
constexpr u32 kTwoTo117 = 0x7A007A00U;

template <Format kFormat>
__device__ __forceinline__ LaneScale prepare_scale(RawScale raw) {
  LaneScale s;
  if constexpr (kFormat == Format::fp8 || kFormat == Format::fp8_block) {
    s.row0 = s.row1 = kTwoTo120;
  } else if constexpr (kFormat == Format::mxfp8) {  // 2^(e-127) · 2^120; e <= 134 is checked when packing
    const u32 pair = ((raw.a & 0xFFU) + 120U) << 7 | ((raw.a >> 8) + 120U) << 23;
    s.row0 = both_low(pair);
    s.row1 = both_high(pair);
  } else if constexpr (kFormat == Format::nvfp4) {  // e4m3 bits are a bf16 · 2^-120
    const u32 pair = (raw.a & 0xFFU) << 4 | (raw.a & 0xFF00U) << 12;
    const u32 scaled = ptx::multiply_bf16x2(ptx::multiply_bf16x2(pair, kTwoTo120), kTwoTo117);
    s.row0 = both_low(scaled);
    s.row1 = both_high(scaled);
  } else if constexpr (kFormat == Format::mxfp4) {  // 2^(e-127) · 2^126 · 2^-64; e <= 192 is checked when packing
    const u32 pair = ((raw.a & 0xFFU) + 62U) << 7 | ((raw.a >> 8) + 62U) << 23;
    s.row0 = both_low(pair);
    s.row1 = both_high(pair);
  } else if constexpr (kIsInt4<kFormat>) {
    s.row0 = both_low(raw.a);
    s.row1 = both_high(raw.a);
    s.zero0 = FormatTraits<kFormat>::kScaleBytes == 8 ? both_low(raw.b) : 0xC308C308U;  // -136: a zero point of 8
    s.zero1 = FormatTraits<kFormat>::kScaleBytes == 8 ? both_high(raw.b) : 0xC308C308U;
  }
  return s;
}

/// Two of four e4m3 bytes of a word as a bf16 pair, times `scale`: kOdd ? bytes 1 and 3 : bytes 0 and 2.
template <bool kOdd>
__device__ __forceinline__ u32 expand_e4m3(u32 word, u32 scale) {
  const u32 high = kOdd ? word : word << 8;
  const u32 low = kOdd ? word >> 4 : word << 4;
  return ptx::multiply_bf16x2(ptx::and_or<0x07F007F0U>(low, high & 0x80008000U), scale);
}

/// Pair p of a word of e2m1 as a bf16 pair, times `scale`.
template <int kPair>
__device__ __forceinline__ u32 expand_e2m1(u32 word, u32 scale) {
  u32 bits;
  if constexpr (kPair < 3)
    bits = (word << (3 * kPair)) & 0x81C081C0U;
  else
    bits = ptx::and_or<0x01000100U>(word >> 5, ptx::and_or<0x00C000C0U>(word >> 4, (word << 1) & 0x80008000U));
  return ptx::multiply_bf16x2(bits, scale);
}

/// Pair p of a word of int4 as (u - zero) · scale. `zero` holds -(128 + zero point), so that 128 + u minus it is exact
/// in bf16.
template <int kPair>
__device__ __forceinline__ u32 expand_int4(u32 word, u32 scale, u32 zero) {
  const u32 biased = ptx::and_or<0x000F000FU>(word >> (4 * kPair), 0x43004300U);
  u32 centred;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(centred) : "r"(biased), "r"(0x3F803F80U), "r"(zero));
  return ptx::multiply_bf16x2(centred, scale);
}

/// Operand a of step kStep from the lane's units of a chunk.
template <Format kFormat, int kStep>
__device__ __forceinline__ void expand_step(const Quad (&units)[FormatTraits<kFormat>::kUnits], const LaneScale& s,
                                            u32 (&a)[4]) {
  if constexpr (kFormat == Format::bf16) {
    const Quad& q = units[kStep];
    a[0] = q.x, a[1] = q.y, a[2] = q.z, a[3] = q.w;
  } else if constexpr (FormatTraits<kFormat>::kUnits == 2) {
    const Quad& q = units[kStep / 2];
    const u32 row0 = kStep % 2 == 0 ? q.x : q.z;
    const u32 row1 = kStep % 2 == 0 ? q.y : q.w;
    a[0] = expand_e4m3<true>(row0, s.row0);
    a[1] = expand_e4m3<true>(row1, s.row1);
    a[2] = expand_e4m3<false>(row0, s.row0);
    a[3] = expand_e4m3<false>(row1, s.row1);
  } else {
    const Quad& q = units[0];
    const u32 row0 = kStep < 2 ? q.x : q.z;
    const u32 row1 = kStep < 2 ? q.y : q.w;
    constexpr int kFirst = 2 * (kStep % 2);
    if constexpr (kIsInt4<kFormat>) {
      a[0] = expand_int4<kFirst>(row0, s.row0, s.zero0);
      a[1] = expand_int4<kFirst>(row1, s.row1, s.zero1);
      a[2] = expand_int4<kFirst + 1>(row0, s.row0, s.zero0);
      a[3] = expand_int4<kFirst + 1>(row1, s.row1, s.zero1);
    } else {
      a[0] = expand_e2m1<kFirst>(row0, s.row0);
      a[1] = expand_e2m1<kFirst>(row1, s.row1);
      a[2] = expand_e2m1<kFirst + 1>(row0, s.row0);
      a[3] = expand_e2m1<kFirst + 1>(row1, s.row1);
    }
  }
}

}  // namespace moetune
