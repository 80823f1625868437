#include "gpu/sm80_decode.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune {
namespace {

/// DecodeShape::kSharedBytes: two buffers of the partial sums of all warps along K but the first.
std::int64_t partial_bytes(std::int64_t depth_warps, std::int64_t row_warps, std::int64_t row_tiles,
                           std::int64_t token_tiles) {
  return 2 * (depth_warps - 1) * row_warps * row_tiles * token_tiles * 4 * 32 * 4;
}

struct Shape {
  std::int64_t row_tiles, row_warps, depth_warps, in_flight, blocks;
  [[nodiscard]] std::int64_t threads() const { return 32 * row_warps * depth_warps; }
};
Shape up_shape(const Config& c) {
  return {c.get("up_rows"), 1, c.get("up_warps"), c.get("up_depth"), c.get("up_blocks")};
}
Shape down_shape(const Config& c) {
  return {c.get("down_rows"), c.get("down_warps"), 1, c.get("down_depth"), c.get("down_blocks")};
}

/// A config with more in flight than registers would spill: what a thread holds at least, against what it gets.
bool fits(const Problem& problem, const Shape& shape, std::int64_t token_tiles) {
  if (shape.threads() * shape.blocks > kThreadsOfSm) return false;
  constexpr std::int64_t kOthers = 32;
  const std::int64_t units = packed_units(problem.weights);
  const std::int64_t weights = shape.row_tiles * (units * 4 + (units < 4 ? 1 : 0));  // and a scale
  const std::int64_t tokens = token_tiles * 8;
  return shape.in_flight * (weights + tokens) + shape.row_tiles * token_tiles * 4 + kOthers <=
         registers_of_thread(shape.threads(), shape.blocks);
}

ProjectionForm form(const Shape& shape, std::int64_t token_tiles) {
  return {"decode",
          "DecodeShape",
          fmt::format("kTokenTiles = {}, kRowTiles = {}, kWarpsRows = {}, kWarpsDepth = {}, kDepth = {}", token_tiles,
                      shape.row_tiles, shape.row_warps, shape.depth_warps, shape.in_flight),
          shape.threads(),
          partial_bytes(shape.depth_warps, shape.row_warps, shape.row_tiles, token_tiles),
          shape.blocks};
}

}  // namespace

Space Sm80Decode::space(const Problem& problem, const Target&, std::int64_t) const {
  Space space;
  space.axes = {
      {"tokens", {8, 16}, "tokens of one expert that a work item takes at most"},
      {"up_rows", problem.gated ? std::vector<std::int64_t>{2, 4} : std::vector<std::int64_t>{1, 2, 4},
       "first projection: rows of a warp, in tiles of 16"},
      {"up_warps", {4, 8, 16}, "first projection: warps that share out the columns of a row"},
      {"up_depth", {1, 2, 3, 4}, "first projection: chunks of 64 columns in flight a warp"},
      {"up_blocks", {1, 2, 3, 4, 5, 6}, "first projection: blocks of a multiprocessor that registers are kept for"},
      {"down_rows", {1, 2, 4, 8}, "second projection: rows of a warp, in tiles of 16"},
      {"down_warps", {4, 8}, "second projection: warps side by side along the rows"},
      {"down_depth", {1, 2, 3}, "second projection: chunks of 64 columns in flight a warp"},
      {"down_blocks", {1, 2, 3, 4, 5, 6}, "second projection: blocks of a multiprocessor that registers are kept for"}};
  space.admits = [problem](const Config& config) {
    const std::int64_t token_tiles = config.get("tokens") / 8;
    return fits(problem, up_shape(config), token_tiles) && fits(problem, down_shape(config), token_tiles);
  };
  return space;
}

bool Sm80Decode::prefers(const Problem& problem, const Target&, std::int64_t tokens) const {
  return tokens * problem.top_k <= 16 * problem.experts_global;  // experts have up to 16 tokens on average
}

/// From an H200 and GLM-5 at TP 8 (bench/NOTES.md): bf16, FP8 and one or two tokens by trying a dozen configs each,
/// NVFP4 by `tune` at 16 and 64 tokens. MXFP4 and int4, which occupy the same bytes, take NVFP4's untried.
Config Sm80Decode::default_config(const Problem& problem, const Target&, std::int64_t tokens) const {
  const std::int64_t units = packed_units(problem.weights);
  if (tokens <= 2)
    return {{{"tokens", 8},
             {"up_rows", 2},
             {"up_warps", 16},
             {"up_depth", 2},
             {"up_blocks", 1},
             {"down_rows", 2},
             {"down_warps", 8},
             {"down_depth", 2},
             {"down_blocks", 2}}};
  return {{{"tokens", 8},
           {"up_rows", units == 1 ? 4 : 2},
           {"up_warps", units == 1 ? 4 : 8},
           {"up_depth", units == 1 ? 3 : 2},
           {"up_blocks", units == 1 ? 1 : 2},
           {"down_rows", units == 4 ? 2 : 4},
           {"down_warps", units == 4 ? 8 : 4},
           {"down_depth", units == 4 ? 2 : 1},
           {"down_blocks", units == 4   ? 2
                           : units == 2 ? 4
                                        : 5}}};
}

LayerPlan Sm80Decode::plan(const Problem& problem, const Target& target, const Config& config) const {
  const std::int64_t token_tiles = config.get("tokens") / 8;
  LayerPlan plan;
  plan.tile_tokens = config.get("tokens");
  plan.up = projection_kernel(form(up_shape(config), token_tiles), true, problem, target);
  plan.down = projection_kernel(form(down_shape(config), token_tiles), false, problem, target);
  return plan;
}

}  // namespace moetune
