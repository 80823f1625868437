// What the device can do at best: reading memory, and multiplying matrices with the widest instruction it has.
#pragma once

#include "common/types.cuh"
#include "ptx/memory.cuh"
#include "ptx/mma.cuh"
#include "ptx/wgmma.cuh"

namespace moetune {

/// Reads `count` pieces of 16 bytes once. `sink` is written in no case that happens, so that no load is dropped.
__device__ __forceinline__ void read_once(const Quad* data, i64 count, u32* sink) {
  constexpr int kBatch = 8;
  const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
  u32 all = 0;
  for (i64 first = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; first < count; first += step * kBatch) {
    Quad q[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      q[i] = first + i * step < count ? ptx::load_stream(data + first + i * step) : Quad{};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) all ^= q[i].x ^ q[i].y ^ q[i].z ^ q[i].w;
  }
  if (all == 0x9E3779B9U) *sink = all;
}

__device__ __forceinline__ void copy_once(const Quad* from, Quad* to, i64 count) {
  const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    to[i] = ptx::load_stream(from + i);
}

/// Operations of a block in one round of multiply_rounds: 2 a multiply-add.
#ifdef MOETUNE_WGMMA
inline constexpr int kPeakThreads = 256, kPeakShared = (64 + 256) * 128;
__device__ __forceinline__ void multiply_rounds(int rounds, u32* sink) {
  // Two warpgroups of m64n256k16; operands in shared memory, 128-byte swizzle. They are numbers of either sign from 1
  // to 4, since the chip clocks higher when it multiplies zeros.
  extern __shared__ __align__(1024) u8 operands[];
  u32* words = reinterpret_cast<u32*>(operands);
  for (u32 i = threadIdx.x; i < kPeakShared / 4; i += kPeakThreads) {
    const u32 mixed = (i ^ i >> 7) * 2654435761U;
    words[i] = ((mixed ^ mixed >> 15) & 0x80FF80FFU) | 0x3F803F80U;
  }
  ptx::fence_async_shared();
  __syncthreads();
  const u64 a = ptx::matrix_descriptor(operands), b = ptx::matrix_descriptor(operands + 64 * 128);
  float sums[128] = {};
  ptx::wgmma_fence();
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int k = 0; k < 4; ++k) ptx::wgmma_m64n256k16_bf16(sums, a + 2 * k, b + 2 * k);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
  }
  ptx::wgmma_wait<0>();
  if (sums[0] + sums[127] == 1.5F) *sink = 1;
}
inline constexpr i64 kPeakOperations = 2LL * 64 * 256 * 64 * (kPeakThreads / 128);
#else
inline constexpr int kPeakThreads = 256, kPeakShared = 0;
__device__ __forceinline__ void multiply_rounds(int rounds, u32* sink) {
  constexpr int kSums = 8;
  float sums[kSums][4];
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = static_cast<float>(i);
  u32 operand[6];  // bf16 numbers of either sign from 1 to 4
#pragma unroll
  for (u32 i = 0; i < 6; ++i) operand[i] = (((threadIdx.x + i) * 2654435761U >> 3) & 0x80FF80FFU) | 0x3F803F80U;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      ptx::mma_m16n8k16_bf16(sums[i], operand[0], operand[1], operand[2], operand[3], operand[4], operand[5]);
  }
  float all = 0.0F;
#pragma unroll
  for (int i = 0; i < kSums; ++i) all += sums[i][0] + sums[i][3];
  if (all == 1.5F) *sink = 1;
}
inline constexpr i64 kPeakOperations = 2LL * 16 * 8 * 16 * 8 * (kPeakThreads / 32);
#endif

}  // namespace moetune
