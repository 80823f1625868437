// What the host hands to the kernels of one layer. Shared by host and device; plain data, no includes.
//
// Weights are repacked once (gpu/pack.h). A *row tile* is 16 rows, a *chunk* is 64 columns; a matrix of N rows and K
// columns has ceil(N/16) row tiles of ceil(K/64) chunks, padded with zeros. Within (tile, chunk) lane l of a warp owns
// rows 2·(l/4) and 2·(l/4)+1 and columns 16·(l%4) … +15, and finds them in `units` consecutive groups of 32 lanes × 16
// bytes; kernels/common/fragment.cuh has the bits of each format.
//
// For the first projection of a gated layer tiles of gate and up rows alternate (gate 0, up 0, gate 1, up 1, …).
#pragma once

namespace moetune {

/// One work item of the grouped matrix products: up to `count` consecutive sorted pairs of one expert.
struct MoeTile {
  int expert;
  int first;  ///< index into sorted_pairs
  int count;  ///< 1 … tokens per tile
  int unused;
};

/// Row tiles of a warp at most. A warp whose last tiles are beyond its expert reads them all the same (the next
/// expert's, whose products it drops): a comparison for each load would cost more than the bytes.
constexpr int kMostRowTiles = 8;

/// A repacked stack of expert matrices. Behind data and scales lie kMostRowTiles - 1 row tiles that may be read.
struct MoeWeights {
  const void* data;        ///< [experts][row tiles][chunks][units][32 lanes][16 bytes]
  const void* scales;      ///< format's own, see kernels/common/fragment.cuh; may be null
  const float* row_scale;  ///< [experts][row tiles · 16]: multiplies the accumulator; null: 1
  const float* bias;       ///< [experts][row tiles · 16]; null: none
  int columns;             ///< K
};

/// Everything the kernels of one call share.
struct MoeCall {
  const unsigned short* input;  ///< bf16 [tokens][hidden]
  const int* ids;               ///< [tokens][top_k], local expert or -1
  const float* routing;         ///< [tokens][top_k]
  unsigned short* output;       ///< bf16 [tokens][hidden]
  int tokens;
  int top_k;
  int hidden;
  int intermediate;
  int experts;
  int tile_tokens;    ///< pairs a MoeTile holds at most
  int* sorted_pairs;  ///< [tokens·top_k]: pair numbers (token·top_k + choice) by expert
  MoeTile* tiles;     ///< [max tiles]
  int* tile_count;    ///< [1]
  int* next_item;  ///< [1], zeroed by align_pairs: how many items of the first projection were taken beyond the first
                   ///< of each block
  unsigned short* middle;  ///< bf16 [tokens·top_k][intermediate padded to 64], by sorted position
  unsigned short* pairs;   ///< bf16 [tokens·top_k][hidden], by pair number, already weighted
};

}  // namespace moetune
