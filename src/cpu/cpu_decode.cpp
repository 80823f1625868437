#include <algorithm>

#include "cpu/cpu_backend.h"
#include "cpu/layer_session.h"
#include "cpu/tile_sizes.h"

namespace moetune {
namespace {

/// Sums that the registers hold: rows side by side times inputs at a time.
constexpr std::int64_t kMaxSums = 8;
constexpr std::int64_t kKilobyte = 1024;
/// As many as any call has.
constexpr std::int64_t kManyTokens = 1 << 20;

Space decode_space(const Target& target, std::int64_t tokens) {
  Space space;
  space.axes = {
      threads_axis(target),
      {"rows", {1, 2, 4}, "rows of weights that are read side by side"},
      {"inputs", powers_of_two(tokens, kMaxSums), "tokens of an expert that each decoded weight is used for at once"},
      {"tile_kb", {4, 16, 64, 256}, "kilobytes of weights that a thread takes at a time"},
      {"prefetch", {0, 512, 1024, 2048, 4096}, "bytes that weights are asked for ahead of their use"},
      schedule_axis()};
  space.admits = [](const Config& config) {
    return config.get("rows") * config.get("inputs") <= kMaxSums &&
           (config.get("threads") > 1 || config.get("dynamic") == 0);
  };
  return space;
}

}  // namespace

std::string CpuDecode::summary() const {
  return "streams each touched expert once and decodes its weights in registers; for few tokens an expert";
}

Space CpuDecode::space(const Problem&, const Target& target, std::int64_t tokens) const {
  return decode_space(target, tokens);
}

Config CpuDecode::default_config(const Problem& problem, const Target& target, std::int64_t tokens) const {
  const std::int64_t threads = processors(target);
  // Tokens that an active expert has on average, if all experts are equally likely.
  const std::int64_t per_expert = ceil_div(tokens * problem.top_k, std::max<std::int64_t>(problem.experts_global, 1));
  const std::int64_t inputs =
      std::min(powers_of_two(per_expert, kMaxSums).back(), powers_of_two(tokens, kMaxSums).back());
  const std::int64_t rows = std::min<std::int64_t>(4, kMaxSums / inputs);
  return {{{"threads", threads},
           {"rows", rows},
           {"inputs", inputs},
           {"tile_kb", 64},
           {"prefetch", 2048},
           {"dynamic", threads > 1 ? 1 : 0}}};
}

Result<std::unique_ptr<Session>> CpuDecode::open(const Problem& problem, const Layer& layer,
                                                 const Target& target) const {
  auto choose = [problem, target](const Config& config, std::int64_t) -> Result<TileChoice> {
    MOETUNE_CHECK(check_config(decode_space(target, kManyTokens), config));
    const DecodeShape shape{config.get("rows"), config.get("inputs")};
    const std::int64_t bytes = config.get("tile_kb") * kKilobyte;
    TileChoice choice;
    choice.threads = config.get("threads");
    choice.dynamic = config.get("dynamic") != 0;
    choice.prefetch_bytes = config.get("prefetch");
    choice.up = decode_kernel(problem.weights, problem.hidden, shape);
    choice.down = decode_kernel(problem.weights, problem.intermediate, shape);
    choice.up_rows = tile_rows(problem.weights, problem.intermediate, problem.hidden, bytes, shape.rows);
    choice.down_rows = tile_rows(problem.weights, problem.hidden, problem.intermediate, bytes, shape.rows);
    return choice;
  };
  return std::make_unique<LayerSession>(problem, layer, std::move(choose));
}

}  // namespace moetune
