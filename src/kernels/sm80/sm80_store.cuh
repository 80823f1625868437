// What becomes of the accumulators: shared by the decode and the tile form, whose warps hold the same fragments.
#pragma once

#include "abi/moe_args.h"
#include "common/activation.cuh"
#include "common/types.cuh"
#include "ptx/convert.cuh"

namespace moetune::sm80 {

/// Row tiles of the first projection as stored: gate and up alternate.
template <class Config>
constexpr int kTilesPerRowTile = Config::kGated ? 2 : 1;

/// Row stride of MoeCall::middle.
__device__ __forceinline__ int middle_stride(const MoeCall& call) { return ceil_div(call.intermediate, 64) * 64; }

/// middle[sorted pair] = activation(gate, up). `tile`: first row tile of acc within the expert; `token`: first token of
/// acc in the work item.
template <class Config, int kRowTiles, int kTokenTiles>
__device__ __forceinline__ void store_middle(const MoeCall& call, const MoeWeights& weights, const MoeTile& work,
                                             int tile, int row_tiles, int token,
                                             const float (&acc)[kRowTiles][kTokenTiles][4], float alpha, float limit) {
  constexpr int kPerRow = kTilesPerRowTile<Config>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < kRowTiles; r += kPerRow) {
    if (tile + r >= row_tiles) continue;
    const i64 stored =
        (static_cast<i64>(work.expert) * row_tiles + tile + r) * 16 + 2 * (lane / 4);  // of the gate (or only) tile
    const int out_row = (tile + r) / kPerRow * 16 + 2 * (lane / 4);
    const auto finish = [&](float sum, i64 row, float factor) {
      float v = sum * factor;
      if (weights.row_scale != nullptr) v *= weights.row_scale[row];
      return weights.bias != nullptr ? v + weights.bias[row] : v;
    };
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int n = token + t * 8 + 2 * (lane % 4) + j;
        if (n >= work.count) continue;
        float factor = 1.0F;
        if constexpr (Config::kWeightOnInput) factor *= call.routing[call.sorted_pairs[work.first + n]];
        float value[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float gate = finish(acc[r][t][2 * i + j], stored + i, factor);
          const float up = Config::kGated ? finish(acc[r + kPerRow - 1][t][2 * i + j], stored + 16 + i, factor) : 1.0F;
          value[i] = activate<Config::kActivation>(gate, up, alpha, limit);
        }
        *reinterpret_cast<u32*>(call.middle + static_cast<i64>(work.first + n) * middle_stride(call) + out_row) =
            ptx::pack_bf16(value[0], value[1]);
      }
  }
}

/// Where a lane's tokens go and with which weight; pair is -1 where the work item has no such token.
template <int kTokenTiles>
struct PairTargets {
  int pair[kTokenTiles][2];
  float weight[kTokenTiles][2];
};

template <class Config, int kTokenTiles>
__device__ __forceinline__ PairTargets<kTokenTiles> find_pairs(const MoeCall& call, const MoeTile& work, int token) {
  PairTargets<kTokenTiles> targets;
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int n = token + t * 8 + 2 * (threadIdx.x % 4) + j;
      const int pair = n < work.count ? call.sorted_pairs[work.first + n] : -1;
      targets.pair[t][j] = pair;
      targets.weight[t][j] = pair >= 0 && !Config::kWeightOnInput ? call.routing[pair] : 1.0F;
    }
  return targets;
}

/// pairs[pair] = routing weight · (down + bias), where combine_pairs looks for it.
template <int kRowTiles, int kTokenTiles>
__device__ __forceinline__ void store_pairs(const MoeCall& call, const MoeWeights& weights, const MoeTile& work,
                                            int tile, int row_tiles, const PairTargets<kTokenTiles>& targets,
                                            const float (&acc)[kRowTiles][kTokenTiles][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    const int row = (tile + r) * 16 + 2 * (lane / 4);
    if (row >= call.hidden) continue;
    const i64 stored = static_cast<i64>(work.expert) * row_tiles * 16 + row;
    float scale[2] = {1.0F, 1.0F}, bias[2] = {0.0F, 0.0F};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (weights.row_scale != nullptr) scale[i] = weights.row_scale[stored + i];
      if (weights.bias != nullptr) bias[i] = weights.bias[stored + i];
    }
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int pair = targets.pair[t][j];
        if (pair < 0) continue;
        const float low = (acc[r][t][j] * scale[0] + bias[0]) * targets.weight[t][j];
        const float high = (acc[r][t][2 + j] * scale[1] + bias[1]) * targets.weight[t][j];
        *reinterpret_cast<u32*>(call.pairs + static_cast<i64>(pair) * call.hidden + row) = ptx::pack_bf16(low, high);
      }
  }
}

}  // namespace moetune::sm80
