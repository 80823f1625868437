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

/// 16-byte units of a lane and chunk: how much weight a row tile in flight takes of the registers.
std::int64_t units_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
    case WeightFormat::fp16:
      return 4;
    case WeightFormat::nvfp4:
    case WeightFormat::mxfp4:
    case WeightFormat::int4:
      return 1;
    default:
      return 2;
  }
}

/// A config with more weights in flight than registers would spill them: what a thread holds at least, against what it
/// gets with that many threads on a multiprocessor.
bool fits_registers(const Problem& problem, std::int64_t threads, std::int64_t blocks, std::int64_t row_tiles,
                    std::int64_t token_tiles, std::int64_t in_flight) {
  constexpr std::int64_t kRegisters = 65536, kMostOfThread = 255, kOthers = 32;
  const std::int64_t each = std::min(kMostOfThread, kRegisters / (threads * blocks) / 8 * 8);
  const std::int64_t units = units_of(problem.weights.format);
  const std::int64_t weights = row_tiles * (units * 4 + (units < 4 ? 1 : 0));  // and a scale
  const std::int64_t tokens = token_tiles * 8;
  return in_flight * (weights + tokens) + row_tiles * token_tiles * 4 + kOthers <= each;
}

constexpr std::int64_t kMostThreads = 1536;  ///< of a multiprocessor on 8.6, 8.9 and 12.x; others have 2048

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

bool fits(const Problem& problem, const Shape& shape, std::int64_t token_tiles) {
  return shape.threads() * shape.blocks <= kMostThreads &&
         fits_registers(problem, shape.threads(), shape.blocks, shape.row_tiles, token_tiles, shape.in_flight);
}

ProjectionKernel projection(const Problem& problem, const Target& target, const Shape& shape, std::int64_t token_tiles,
                            bool up) {
  ProjectionKernel kernel;
  kernel.entry = up ? "moe_up" : "moe_down";
  kernel.threads = shape.threads();
  kernel.shared_bytes = partial_bytes(shape.depth_warps, shape.row_warps, shape.row_tiles, token_tiles);
  ProjectionText text;
  text.header = "sm80/sm80_decode.cuh";
  text.config = fmt::format("kTokenTiles = {}, kRowTiles = {}, kWarpsRows = {}, kWarpsDepth = {}, kDepth = {}",
                            token_tiles, shape.row_tiles, shape.row_warps, shape.depth_warps, shape.in_flight);
  text.check = fmt::format("sm80::DecodeShape<Config>::kThreads == {} && sm80::DecodeShape<Config>::kSharedBytes == {}",
                           kernel.threads, kernel.shared_bytes);
  text.call = up ? "sm80::decode_up<Config>(call, weights, alpha, limit)" : "sm80::decode_down<Config>(call, weights)";
  text.threads = kernel.threads;
  text.blocks_per_sm = shape.blocks;
  kernel.source = projection_source(kernel.entry, text, problem, target);
  return kernel;
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

/// What came out best most often on an H200 (bench/NOTES.md): bf16 has its bytes in flight with two blocks of eight
/// warps, four-bit formats with fewer warps of more rows, which share the tokens that they load.
Config Sm80Decode::default_config(const Problem& problem, const Target&, std::int64_t tokens) const {
  const std::int64_t units = units_of(problem.weights.format);
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
  plan.up = projection(problem, target, up_shape(config), token_tiles, true);
  plan.down = projection(problem, target, down_shape(config), token_tiles, false);
  return plan;
}

}  // namespace moetune
