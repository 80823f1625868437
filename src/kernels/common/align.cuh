// Sorts (token, expert) pairs by expert and cuts them into tiles, on the device, in one block: no host ever waits for a
// count.
#pragma once

#include "abi/moe_args.h"
#include "common/types.cuh"

namespace moetune {

/// Exclusive sum over the block of one value a thread; `total` gets the sum of all. `scratch`: 33 ints of shared
/// memory.
template <int kThreads>
__device__ __forceinline__ int exclusive_sum(int value, int* scratch, int& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFFU, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) scratch[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    int part = lane < kThreads / 32 ? scratch[lane] : 0;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, part, step);
      if (lane >= step) part += other;
    }
    scratch[lane] = part;
  }
  __syncthreads();
  total = scratch[kThreads / 32 - 1];
  const int before = warp == 0 ? 0 : scratch[warp - 1];
  __syncthreads();
  return before + sum - value;
}

/// Calls visit(pair, expert) for every pair of a local expert, several ids a thread in flight.
template <int kThreads, class Visit>
__device__ __forceinline__ void for_each_local_pair(const MoeCall& call, const Visit& visit) {
  constexpr int kBatch = 8;
  const int pairs = call.tokens * call.top_k;
  for (int first = threadIdx.x; first < pairs; first += kThreads * kBatch) {
    u32 expert[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      expert[i] = first + i * kThreads < pairs ? static_cast<u32>(call.ids[first + i * kThreads]) : ~0U;
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (expert[i] < static_cast<u32>(call.experts)) visit(first + i * kThreads, static_cast<int>(expert[i]));
  }
}

/// One block. Shared memory: (experts + 33) ints. Pairs of an expert keep no particular order. Ids outside 0 …
/// experts-1 are skipped.
template <int kThreads>
__device__ void align_pairs(const MoeCall& call) {
  extern __shared__ int shared_ints[];
  int* counts = shared_ints;  // pairs of each expert, then the place of its next pair
  int* scratch = shared_ints + call.experts;
  for (int e = threadIdx.x; e < call.experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  for_each_local_pair<kThreads>(call, [&](int, int expert) { atomicAdd(&counts[expert], 1); });
  __syncthreads();
  int first_pair = 0, first_tile = 0;  // of this round of kThreads experts
  for (int round = 0; round < call.experts; round += kThreads) {
    const int e = round + static_cast<int>(threadIdx.x);
    const int count = e < call.experts ? counts[e] : 0;
    int all_pairs, all_tiles;
    const int start = first_pair + exclusive_sum<kThreads>(count, scratch, all_pairs);
    int tile = first_tile + exclusive_sum<kThreads>(ceil_div(count, call.tile_tokens), scratch, all_tiles);
    for (int done = 0; done < count; done += call.tile_tokens)
      call.tiles[tile++] = {e, start + done, min(call.tile_tokens, count - done), 0};
    if (e < call.experts) counts[e] = start;
    first_pair += all_pairs;
    first_tile += all_tiles;
  }
  if (threadIdx.x == 0) {
    *call.tile_count = first_tile;
    *call.next_item = 0;
  }
  __syncthreads();
  for_each_local_pair<kThreads>(call,
                                [&](int pair, int expert) { call.sorted_pairs[atomicAdd(&counts[expert], 1)] = pair; });
}

}  // namespace moetune
