// Few tokens an expert: a warp streams its rows of weights from memory straight into operand registers, and the tokens
// are the narrow side of the product. No shared memory but for adding up a split K, no barrier in the loop: what limits
// it is how many bytes are under way.
//
// Runs from 8.0 on. A Config names:
//   kFormat, kActivation, kGated, kWeightOnInput
//   kTokenTiles   tokens of a work item / 8
//   kRowTiles     row tiles of a warp (first projection of a gated layer: gate and up tiles in pairs, so even)
//   kWarpsRows    warps of a block side by side along the rows
//   kWarpsDepth   warps of a block that share out K
//   kDepth        chunks of weights in flight a warp
#pragma once

#include "abi/moe_args.h"
#include "common/fragment.cuh"
#include "ptx/mma.cuh"
#include "sm80/sm80_store.cuh"

namespace moetune::sm80 {

template <class Config>
struct DecodeShape {
  static_assert(Config::kRowTiles <= kMostRowTiles, "reads beyond what the host has put behind the weights");
  static constexpr int kWarps = Config::kWarpsRows * Config::kWarpsDepth;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kAccumulators = Config::kRowTiles * Config::kTokenTiles * 4;
  /// Floats of shared memory: two buffers of partial sums, so that one barrier a work item is enough.
  static constexpr int kSharedFloats = 2 * (Config::kWarpsDepth - 1) * Config::kWarpsRows * kAccumulators * 32;
  static constexpr int kSharedBytes = kSharedFloats * 4;
};

/// What a lane reads of its tokens: a pointer to each token's row, null where the work item has none there.
template <int kTokenTiles>
struct TokenRows {
  const u16* row[kTokenTiles];
};

/// acc[row tile][token tile] += W[rows, chunks] · X. `tile`: first row tile of the warp, counted over the whole stack.
template <class Config>
__device__ __forceinline__ void stream_rows(const MoeWeights& weights, i64 tile, int chunks, int begin, int end,
                                            int columns, const TokenRows<Config::kTokenTiles>& tokens,
                                            float (&acc)[Config::kRowTiles][Config::kTokenTiles][4]) {
  constexpr Format kFormat = Config::kFormat;
  constexpr int kUnits = FormatTraits<kFormat>::kUnits;
  constexpr int kRowTiles = Config::kRowTiles, kTokenTiles = Config::kTokenTiles, kDepth = Config::kDepth;
  const int lane = threadIdx.x % 32;
  const u8* data = static_cast<const u8*>(weights.data) + lane * 16;
  const u8* scales = static_cast<const u8*>(weights.scales);

  Quad w[kDepth][kRowTiles][kUnits];
  RawScale raw[kDepth][kRowTiles];
  Quad x[kDepth][kTokenTiles][2];
  const auto load_weights = [&](int slot, int chunk) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const i64 tile_chunk = (tile + r) * chunks + chunk;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) w[slot][r][u] = ptx::load_stream(data + (tile_chunk * kUnits + u) * 512);
      raw[slot][r] = load_scale<kFormat>(scales, tile_chunk, lane);
    }
  };
  const auto load_tokens = [&](int slot, int chunk) {
    const int column = chunk * 64 + (lane % 4) * 16;
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        x[slot][t][h] = Quad{0, 0, 0, 0};
        if (tokens.row[t] != nullptr && column + 8 * h < columns)
          x[slot][t][h] = ptx::load_shared_line(tokens.row[t] + column + 8 * h);
      }
  };
  const auto compute = [&](int slot) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const LaneScale scale = prepare_scale<kFormat>(raw[slot][r]);
      float part[kTokenTiles][4] = {};
      float(&sum)[kTokenTiles][4] = kFormat == Format::fp8_block ? part : acc[r];
      const auto step = [&]<int kStep>() {
        u32 a[4];
        expand_step<kFormat, kStep>(w[slot][r], scale, a);
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
          const Quad& q = x[slot][t][kStep / 2];
          ptx::mma_m16n8k16_bf16(sum[t], a[0], a[1], a[2], a[3], kStep % 2 == 0 ? q.x : q.z,
                                 kStep % 2 == 0 ? q.y : q.w);
        }
      };
      step.template operator()<0>();
      step.template operator()<1>();
      step.template operator()<2>();
      step.template operator()<3>();
      if constexpr (kFormat == Format::fp8_block) {
        const float s = __uint_as_float(raw[slot][r].a);
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[r][t][i] += s * part[t][i];
      }
    }
  };

  // Where the tokens are is known later than where the weights are: a load that waits for its address holds up all
  // behind it.
#pragma unroll
  for (int d = 0; d < kDepth; ++d)
    if (begin + d < end) load_weights(d, begin + d);
#pragma unroll
  for (int d = 0; d < kDepth; ++d)
    if (begin + d < end) load_tokens(d, begin + d);
  for (int base = begin; base < end; base += kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (base + d >= end) break;
      compute(d);
      if (base + d + kDepth < end) {
        load_weights(d, base + d + kDepth);
        load_tokens(d, base + d + kDepth);
      }
    }
  }
}

/// Adds the sums of the warps that share out K into those of the first of them. Returns whether this warp is the first.
template <class Config>
__device__ __forceinline__ bool add_depth(float (&acc)[Config::kRowTiles][Config::kTokenTiles][4], int buffer) {
  using Shape = DecodeShape<Config>;
  if constexpr (Config::kWarpsDepth == 1) {
    return true;
  } else {
    extern __shared__ float partial[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp % Config::kWarpsRows, depth = warp / Config::kWarpsRows;
    float* mine = partial + buffer * (Shape::kSharedFloats / 2) + lane;
    float* flat = &acc[0][0][0];
    const auto at = [&](int d, int i) {
      return (((d - 1) * Config::kWarpsRows + row) * Shape::kAccumulators + i) * 32;
    };
    if (depth > 0) {
#pragma unroll
      for (int i = 0; i < Shape::kAccumulators; ++i) mine[at(depth, i)] = flat[i];
    }
    __syncthreads();
    if (depth > 0) return false;
#pragma unroll
    for (int d = 1; d < Config::kWarpsDepth; ++d)
#pragma unroll
      for (int i = 0; i < Shape::kAccumulators; ++i) flat[i] += mine[at(d, i)];
    return true;
  }
}

/// middle = activation(W_gate x, W_up x) for every sorted pair.
template <class Config>
__device__ __forceinline__ void decode_up(const MoeCall& call, const MoeWeights& weights, float alpha, float limit) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_row = warp % Config::kWarpsRows, warp_depth = warp / Config::kWarpsRows;
  const int chunks = ceil_div(weights.columns, 64);
  const int row_tiles = ceil_div(call.intermediate, 16) * kTilesPerRowTile<Config>;
  const int groups = ceil_div(row_tiles, Config::kRowTiles * Config::kWarpsRows);
  const int begin = chunks * warp_depth / Config::kWarpsDepth, end = chunks * (warp_depth + 1) / Config::kWarpsDepth;
  const int items = *call.tile_count * groups;
  // Items are long and few: blocks take the next one when they are done instead of a fixed share.
  __shared__ int next[2];
  int buffer = 0;
  for (int item = blockIdx.x; item < items; buffer ^= 1) {
    if (threadIdx.x == 0) next[buffer] = static_cast<int>(gridDim.x) + atomicAdd(call.next_item, 1);
    const MoeTile work = call.tiles[item / groups];
    const int tile = ((item % groups) * Config::kWarpsRows + warp_row) * Config::kRowTiles;
    TokenRows<Config::kTokenTiles> tokens;
#pragma unroll
    for (int t = 0; t < Config::kTokenTiles; ++t) {
      const int n = t * 8 + lane / 4;
      tokens.row[t] = nullptr;
      if (n < work.count) {
        const int token = call.sorted_pairs[work.first + n] / call.top_k;
        tokens.row[t] = call.input + static_cast<i64>(token) * call.hidden;
      }
    }
    float acc[Config::kRowTiles][Config::kTokenTiles][4] = {};
    const bool inside = tile < row_tiles;
    if (inside)
      stream_rows<Config>(weights, static_cast<i64>(work.expert) * row_tiles + tile, chunks, begin, end,
                          weights.columns, tokens, acc);
    const bool first = add_depth<Config>(acc, buffer);
    if constexpr (Config::kWarpsDepth == 1) __syncthreads();  // add_depth had no partial sums to wait for
    item = next[buffer];
    if (first && inside) store_middle<Config>(call, weights, work, tile, row_tiles, 0, acc, alpha, limit);
  }
}

/// pairs = routing weight · W_down middle for every sorted pair, written where combine_pairs looks for it.
template <class Config>
__device__ __forceinline__ void decode_down(const MoeCall& call, const MoeWeights& weights) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_row = warp % Config::kWarpsRows, warp_depth = warp / Config::kWarpsRows;
  const int chunks = ceil_div(weights.columns, 64);
  const int row_tiles = ceil_div(call.hidden, 16);
  const int groups = ceil_div(row_tiles, Config::kRowTiles * Config::kWarpsRows);
  const int begin = chunks * warp_depth / Config::kWarpsDepth, end = chunks * (warp_depth + 1) / Config::kWarpsDepth;
  const int columns = ceil_div(call.intermediate, 16) * 16;  // decode_up writes whole row tiles
  const int items = *call.tile_count * groups;
  int buffer = 0;
  // K is short here: what an item waits for before its first load counts, so the next item's tile is read one item
  // ahead.
  MoeTile next = static_cast<int>(blockIdx.x) < items ? call.tiles[blockIdx.x / groups] : MoeTile{};
  for (int item = blockIdx.x; item < items; item += gridDim.x, buffer ^= 1) {
    const MoeTile work = next;
    if (item + static_cast<int>(gridDim.x) < items) next = call.tiles[(item + gridDim.x) / groups];
    const int tile = ((item % groups) * Config::kWarpsRows + warp_row) * Config::kRowTiles;
    TokenRows<Config::kTokenTiles> tokens;
#pragma unroll
    for (int t = 0; t < Config::kTokenTiles; ++t) {
      const int n = t * 8 + lane / 4;
      tokens.row[t] = n < work.count ? call.middle + static_cast<i64>(work.first + n) * middle_stride(call) : nullptr;
    }
    const PairTargets<Config::kTokenTiles> targets = find_pairs<Config, Config::kTokenTiles>(call, work, 0);
    float acc[Config::kRowTiles][Config::kTokenTiles][4] = {};
    const bool inside = tile < row_tiles;
    if (inside)
      stream_rows<Config>(weights, static_cast<i64>(work.expert) * row_tiles + tile, chunks, begin, end, columns,
                          tokens, acc);
    if (!add_depth<Config>(acc, buffer) || !inside) continue;
    store_pairs(call, weights, work, tile, row_tiles, targets, acc);
  }
}

}  // namespace moetune::sm80
