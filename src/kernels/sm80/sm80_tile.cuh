// Many tokens an expert: blocks of rows × tokens, both staged through shared memory by asynchronous copies, weights
// expanded to bf16 in registers on their way into the tensor cores.
//
// Runs from 8.0 on. A Config names:
//   kFormat, kActivation, kGated, kWeightOnInput
//   kRowTiles     row tiles of a warp (even where gate and up tiles come in pairs)
//   kTokenTiles   token tiles (8 tokens) of a warp
//   kWarpsRows, kWarpsTokens   warps of a block along rows and tokens
//   kStages       chunks of 64 columns in shared memory
#pragma once

#include "abi/moe_args.h"
#include "common/fragment.cuh"
#include "ptx/mma.cuh"
#include "sm80/sm80_store.cuh"

namespace moetune::sm80 {

template <class Config>
struct TileShape {
  static constexpr int kWarps = Config::kWarpsRows * Config::kWarpsTokens;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlockRowTiles = Config::kRowTiles * Config::kWarpsRows;
  static constexpr int kBlockTokens = Config::kTokenTiles * Config::kWarpsTokens * 8;
  static constexpr int kUnits = FormatTraits<Config::kFormat>::kUnits;
  static constexpr int kWeightBytes = kBlockRowTiles * kUnits * 512;  // of a stage
  static constexpr int kTokenBytes = kBlockTokens * 128;
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes;
  static constexpr int kSharedBytes = Config::kStages * kStageBytes;
};

/// Where a token's 16-byte piece lies in a stage: rows of 128 bytes, pieces permuted by the row so that the eight lanes
/// of a phase, which read every other piece of two rows, meet eight different groups of banks.
__device__ __forceinline__ u32 token_piece(int token, int piece) {
  return static_cast<u32>(token * 128 + ((piece ^ (token & 7)) << 4));
}

/// One block's product: acc[row tile][token tile] of each warp. `source(n)` is the row of token n of the block, null
/// from `tokens` on; a warp whose tokens are all beyond only helps to copy.
template <class Config, class Source>
__device__ __forceinline__ void multiply_tiles(const MoeWeights& weights, i64 tile, int tiles_inside, int chunks,
                                               int columns, int tokens, const Source& source,
                                               float (&acc)[Config::kRowTiles][Config::kTokenTiles][4]) {
  using Shape = TileShape<Config>;
  constexpr Format kFormat = Config::kFormat;
  constexpr int kUnits = Shape::kUnits, kRowTiles = Config::kRowTiles, kTokenTiles = Config::kTokenTiles,
                kStages = Config::kStages;
  extern __shared__ u8 stages[];
  const u32 shared = ptx::shared_address(stages);
  const auto read_shared = [&](u32 offset) { return *reinterpret_cast<const Quad*>(stages + offset); };
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_row = warp % Config::kWarpsRows, warp_token = warp / Config::kWarpsRows;
  const bool active = warp_token * kTokenTiles * 8 < tokens && warp_row * kRowTiles < tiles_inside;
  const u8* data = static_cast<const u8*>(weights.data);
  const u8* scales = static_cast<const u8*>(weights.scales);

  // Pieces of a token row that this thread copies: the same piece of every (threads / 8)-th token.
  constexpr int kTokenStep = Shape::kThreads / 8;
  constexpr int kCopies = (Shape::kBlockTokens + kTokenStep - 1) / kTokenStep;
  const int piece = threadIdx.x % 8;
  const u16* rows[kCopies];
#pragma unroll
  for (int i = 0; i < kCopies; ++i) {
    const int n = static_cast<int>(threadIdx.x) / 8 + i * kTokenStep;
    rows[i] = n < Shape::kBlockTokens ? source(n) : nullptr;
  }
  const auto copy_stage = [&](int chunk) {
    const u32 stage = shared + static_cast<u32>((chunk % kStages) * Shape::kStageBytes);
    constexpr int kPieces = Shape::kWeightBytes / 16;
    constexpr int kTilePieces = kUnits * 32;
#pragma unroll
    for (int i = 0; i < (kPieces + Shape::kThreads - 1) / Shape::kThreads; ++i) {
      const int p = static_cast<int>(threadIdx.x) + i * Shape::kThreads;
      if (kPieces % Shape::kThreads != 0 && p >= kPieces) break;
      const int t = p / kTilePieces;
      const bool inside = t < tiles_inside;
      const i64 from = ((tile + (inside ? t : 0)) * chunks + chunk) * kTilePieces + p % kTilePieces;
      ptx::copy_async_16(stage + static_cast<u32>(p) * 16, data + from * 16, inside);
    }
    const int column = chunk * 64 + piece * 8;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int n = static_cast<int>(threadIdx.x) / 8 + i * kTokenStep;
      if (Shape::kBlockTokens % kTokenStep != 0 && n >= Shape::kBlockTokens) break;
      const bool valid = rows[i] != nullptr && column < columns;
      ptx::copy_async_16(stage + Shape::kWeightBytes + token_piece(n, piece),
                         valid ? rows[i] + column : static_cast<const void*>(data), valid);
    }
  };
  const i64 my_tile = tile + warp_row * kRowTiles;
  RawScale raw[kRowTiles];
  const auto load_scales = [&](int chunk) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
      if (warp_row * kRowTiles + r < tiles_inside)
        raw[r] = load_scale<kFormat>(scales, (my_tile + r) * chunks + chunk, lane);
  };

#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < chunks) copy_stage(s);
    ptx::copy_async_commit();
  }
  load_scales(0);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    ptx::copy_async_wait<kStages - 2>();
    __syncthreads();
    if (chunk + kStages - 1 < chunks) copy_stage(chunk + kStages - 1);
    ptx::copy_async_commit();
    LaneScale scale[kRowTiles];
    float block_scale[kRowTiles];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      scale[r] = prepare_scale<kFormat>(raw[r]);
      block_scale[r] = __uint_as_float(raw[r].a);
    }
    if (chunk + 1 < chunks) load_scales(chunk + 1);
    if (!active) continue;
    const u32 stage = static_cast<u32>((chunk % kStages) * Shape::kStageBytes);
    const u32 my_weights = stage + static_cast<u32>(warp_row * kRowTiles * kUnits * 512 + lane * 16);
    const u32 my_tokens = stage + Shape::kWeightBytes;
    constexpr bool kBlockScale = kFormat == Format::fp8_block;
    float part[kBlockScale ? kRowTiles : 1][kBlockScale ? kTokenTiles : 1][4] = {};
    Quad w[kRowTiles][kUnits];
    const auto half = [&]<int kHalf>() {
      Quad x[kTokenTiles];
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        const int n = (warp_token * kTokenTiles + t) * 8 + lane / 4;
        x[t] = read_shared(my_tokens + token_piece(n, 2 * (lane % 4) + kHalf));
      }
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        constexpr int kFirst = kUnits == 4 ? 2 * kHalf : kUnits == 2 ? kHalf : 0;
        constexpr int kCount = kUnits == 4 ? 2 : (kUnits == 2 || kHalf == 0) ? 1 : 0;
#pragma unroll
        for (int u = kFirst; u < kFirst + kCount; ++u)
          w[r][u] = read_shared(my_weights + static_cast<u32>((r * kUnits + u) * 512));
      }
      const auto step = [&]<int kStep>() {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          u32 a[4];
          expand_step<kFormat, kStep>(w[r], scale[r], a);
#pragma unroll
          for (int t = 0; t < kTokenTiles; ++t) {
            const u32 b0 = kStep % 2 == 0 ? x[t].x : x[t].z, b1 = kStep % 2 == 0 ? x[t].y : x[t].w;
            if constexpr (kBlockScale)
              ptx::mma_m16n8k16_bf16(part[r][t], a[0], a[1], a[2], a[3], b0, b1);
            else
              ptx::mma_m16n8k16_bf16(acc[r][t], a[0], a[1], a[2], a[3], b0, b1);
          }
        }
      };
      step.template operator()<2 * kHalf>();
      step.template operator()<2 * kHalf + 1>();
    };
    half.template operator()<0>();
    half.template operator()<1>();
    if constexpr (kBlockScale) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[r][t][i] += block_scale[r] * part[r][t][i];
    }
  }
  ptx::copy_async_wait<0>();
  __syncthreads();  // the next work item overwrites the stages
}

/// middle = activation(W_gate x, W_up x) for every sorted pair.
template <class Config>
__device__ __forceinline__ void tile_up(const MoeCall& call, const MoeWeights& weights, float alpha, float limit) {
  using Shape = TileShape<Config>;
  const int warp = threadIdx.x / 32;
  const int chunks = ceil_div(weights.columns, 64);
  const int row_tiles = ceil_div(call.intermediate, 16) * kTilesPerRowTile<Config>;
  const int groups = ceil_div(row_tiles, Shape::kBlockRowTiles);
  const int items = *call.tile_count * groups;
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const MoeTile work = call.tiles[item / groups];
    const int tile = (item % groups) * Shape::kBlockRowTiles;
    const auto source = [&](int n) -> const u16* {
      if (n >= work.count) return nullptr;
      return call.input + static_cast<i64>(call.sorted_pairs[work.first + n] / call.top_k) * call.hidden;
    };
    float acc[Config::kRowTiles][Config::kTokenTiles][4] = {};
    multiply_tiles<Config>(weights, static_cast<i64>(work.expert) * row_tiles + tile,
                           min(Shape::kBlockRowTiles, row_tiles - tile), chunks, weights.columns, work.count, source,
                           acc);
    store_middle<Config>(call, weights, work, tile + warp % Config::kWarpsRows * Config::kRowTiles, row_tiles,
                         warp / Config::kWarpsRows * Config::kTokenTiles * 8, acc, alpha, limit);
  }
}

/// pairs = routing weight · W_down middle for every sorted pair.
template <class Config>
__device__ __forceinline__ void tile_down(const MoeCall& call, const MoeWeights& weights) {
  using Shape = TileShape<Config>;
  const int warp = threadIdx.x / 32;
  const int chunks = ceil_div(weights.columns, 64);
  const int row_tiles = ceil_div(call.hidden, 16);
  const int groups = ceil_div(row_tiles, Shape::kBlockRowTiles);
  const int columns = ceil_div(call.intermediate, 16) * 16;  // tile_up writes whole row tiles
  const int items = *call.tile_count * groups;
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const MoeTile work = call.tiles[item / groups];
    const int tile = (item % groups) * Shape::kBlockRowTiles;
    const auto source = [&](int n) -> const u16* {
      return n < work.count ? call.middle + static_cast<i64>(work.first + n) * middle_stride(call) : nullptr;
    };
    float acc[Config::kRowTiles][Config::kTokenTiles][4] = {};
    multiply_tiles<Config>(weights, static_cast<i64>(work.expert) * row_tiles + tile,
                           min(Shape::kBlockRowTiles, row_tiles - tile), chunks, columns, work.count, source, acc);
    const auto targets =
        find_pairs<Config, Config::kTokenTiles>(call, work, warp / Config::kWarpsRows * Config::kTokenTiles * 8);
    store_pairs(call, weights, work, tile + warp % Config::kWarpsRows * Config::kRowTiles, row_tiles, targets, acc);
  }
}

}  // namespace moetune::sm80
