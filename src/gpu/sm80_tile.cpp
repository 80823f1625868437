#include "gpu/sm80_tile.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune {
namespace {

struct Shape {
  std::int64_t row_tiles, token_tiles, row_warps, token_warps, stages, blocks;
  [[nodiscard]] std::int64_t threads() const { return 32 * row_warps * token_warps; }
  /// TileShape::kSharedBytes.
  [[nodiscard]] std::int64_t shared_bytes(const WeightSpec& spec) const {
    return stages * (row_tiles * row_warps * packed_units(spec) * 512 + token_tiles * token_warps * 8 * 128);
  }
};
Shape up_shape(const Config& c) {
  return {c.get("up_rows"),     c.get("token_tiles"), c.get("up_warps"),
          c.get("token_warps"), c.get("stages"),      c.get("up_blocks")};
}
Shape down_shape(const Config& c) {
  return {c.get("down_rows"),   c.get("token_tiles"), c.get("down_warps"),
          c.get("token_warps"), c.get("stages"),      c.get("down_blocks")};
}

bool fits(const Problem& problem, const Target& target, const Shape& shape) {
  constexpr std::int64_t kOthers = 48;      // registers
  constexpr std::int64_t kReserved = 1024;  // of a block's shared memory, by the system
  if (shape.threads() < 64 || shape.threads() > 512 || shape.threads() * shape.blocks > kThreadsOfSm) return false;
  const std::int64_t shared = shape.shared_bytes(problem.weights);
  if (shared > shared_limit(target)) return false;
  if (shape.blocks * (shared + kReserved) > target.smem_per_sm_bytes.value_or(shared_limit(target) + kReserved))
    return false;
  // Block scales keep a second set of sums.
  const std::int64_t sets = problem.weights.format == WeightFormat::fp8_block ? 2 : 1;
  return shape.row_tiles * (4 * shape.token_tiles * sets + 4) + 4 * shape.token_tiles + kOthers <=
         registers_of_thread(shape.threads(), shape.blocks);
}

ProjectionForm form(const Problem& problem, const Shape& shape) {
  return {"tile",
          "TileShape",
          fmt::format("kRowTiles = {}, kTokenTiles = {}, kWarpsRows = {}, kWarpsTokens = {}, kStages = {}",
                      shape.row_tiles, shape.token_tiles, shape.row_warps, shape.token_warps, shape.stages),
          shape.threads(),
          shape.shared_bytes(problem.weights),
          shape.blocks};
}

}  // namespace

Space Sm80Tile::space(const Problem& problem, const Target& target, std::int64_t) const {
  Space space;
  space.axes = {
      {"token_tiles", {2, 4, 8}, "tokens of a warp, in tiles of 8"},
      {"token_warps", {1, 2, 4}, "warps of a block side by side along the tokens"},
      {"stages", {2, 3, 4}, "chunks of 64 columns in shared memory"},
      {"up_rows", {2, 4, 8}, "first projection: rows of a warp, in tiles of 16"},
      {"up_warps", {1, 2, 4}, "first projection: warps side by side along the rows"},
      {"up_blocks", {1, 2, 3, 4}, "first projection: blocks of a multiprocessor that registers are kept for"},
      {"down_rows", {2, 4, 8}, "second projection: rows of a warp, in tiles of 16"},
      {"down_warps", {1, 2, 4}, "second projection: warps side by side along the rows"},
      {"down_blocks", {1, 2, 3, 4}, "second projection: blocks of a multiprocessor that registers are kept for"}};
  space.admits = [problem, target](const Config& config) {
    return fits(problem, target, up_shape(config)) && fits(problem, target, down_shape(config));
  };
  return space;
}

/// From trying a dozen configs with bf16 on an H200 (bench/NOTES.md); one block where shared memory or registers hold
/// no two. Other formats take the same untried.
Config Sm80Tile::default_config(const Problem& problem, const Target& target, std::int64_t tokens) const {
  const bool many = tokens * problem.top_k > 128 * problem.experts_global;
  const auto config = [many](std::int64_t blocks) -> Config {
    return {{{"token_tiles", many ? 8 : 4},
             {"token_warps", 2},
             {"stages", 3},
             {"up_rows", many ? 4 : 2},
             {"up_warps", many ? 2 : 4},
             {"up_blocks", blocks},
             {"down_rows", many ? 4 : 2},
             {"down_warps", many ? 2 : 4},
             {"down_blocks", blocks}}};
  };
  for (const std::int64_t blocks : {2, 1})
    if (fits(problem, target, up_shape(config(blocks)))) return config(blocks);
  return {{{"token_tiles", 4},
           {"token_warps", 2},
           {"stages", 2},
           {"up_rows", 2},
           {"up_warps", 2},
           {"up_blocks", 1},
           {"down_rows", 2},
           {"down_warps", 2},
           {"down_blocks", 1}}};
}

LayerPlan Sm80Tile::plan(const Problem& problem, const Target& target, const Config& config) const {
  LayerPlan plan;
  plan.tile_tokens = 8 * config.get("token_tiles") * config.get("token_warps");
  plan.up = projection_kernel(form(problem, up_shape(config)), true, problem, target);
  plan.down = projection_kernel(form(problem, down_shape(config)), false, problem, target);
  return plan;
}

}  // namespace moetune
