// Number conversions (PTX ISA, "cvt", "fma", "lop3"), two values a register.
#pragma once

#include "common/types.cuh"

namespace moetune::ptx {

/// bf16 pair from two floats, rounded to nearest even: `low` in the low half. sm_80 and later.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

/// a·b of bf16 pairs. sm_80 has no mul.bf16x2: fused with an addend of -0, which changes nothing.
__device__ __forceinline__ u32 multiply_bf16x2(u32 a, u32 b) {
  u32 d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000U));
  return d;
}

/// (a & b) | c in one instruction.
template <u32 kMask>
__device__ __forceinline__ u32 and_or(u32 a, u32 c) {
  u32 d;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "n"(kMask), "r"(c));
  return d;
}

__device__ __forceinline__ float bf16_to_float(u32 bits) { return __uint_as_float(bits << 16); }

}  // namespace moetune::ptx
