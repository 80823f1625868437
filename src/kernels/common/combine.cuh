// Adds up what the experts made of each token.
#pragma once

#include "abi/moe_args.h"
#include "common/types.cuh"
#include "ptx/convert.cuh"
#include "ptx/memory.cuh"

namespace moetune {

/// output[t] = sum over the token's local experts of pairs[t·top_k + k], which carry the routing weight already. One
/// thread makes eight columns; a grid of any size. hidden is a multiple of 8.
__device__ __forceinline__ void combine_pairs(const MoeCall& call) {
  const int vectors = call.hidden / 8;
  const i64 all = static_cast<i64>(call.tokens) * vectors;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < all;
       i += static_cast<i64>(gridDim.x) * blockDim.x) {
    const int token = static_cast<int>(i / vectors);
    const int column = static_cast<int>(i % vectors) * 8;
    float sum[8] = {};
#pragma unroll 4
    for (int k = 0; k < call.top_k; ++k) {
      const i64 pair = static_cast<i64>(token) * call.top_k + k;
      if (static_cast<u32>(call.ids[pair]) >= static_cast<u32>(call.experts)) continue;
      const Quad q = ptx::load_stream(call.pairs + pair * call.hidden + column);
      const u32 words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        sum[2 * w] += __uint_as_float(words[w] << 16);
        sum[2 * w + 1] += __uint_as_float(words[w] & 0xFFFF0000U);
      }
    }
    const Quad out = {ptx::pack_bf16(sum[0], sum[1]), ptx::pack_bf16(sum[2], sum[3]), ptx::pack_bf16(sum[4], sum[5]),
                      ptx::pack_bf16(sum[6], sum[7])};
    *reinterpret_cast<Quad*>(call.output + static_cast<i64>(token) * call.hidden + column) = out;
  }
}

}  // namespace moetune
