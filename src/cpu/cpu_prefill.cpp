#include <algorithm>
#include <limits>

#include "cpu/cpu_backend.h"
#include "cpu/layer_session.h"
#include "cpu/tile_sizes.h"

namespace moetune {
namespace {

/// Whether that target multiplies pairs of bf16.
bool dots_bf16(const Target& target) {
  return std::find(target.features.begin(), target.features.end(), "avx512_bf16") != target.features.end();
}

Space prefill_space(const Target& target) {
  Space space;
  space.axes = {threads_axis(target),
                {"inputs", {2, 3, 4}, "tokens that share a load of weights in registers; rows fill the rest"},
                {"tile_rows", {16, 32, 64, 128, 256}, "rows of weights that are dequantised at a time"},
                {"k_chunk", {128, 256, 512, 1024}, "columns of weights that are dequantised at a time"},
                {"prefetch", {0, 1}, "1: ask for the stored weights of the next panel while this one is used"},
                schedule_axis()};
  if (dots_bf16(target))
    space.axes.push_back({"bf16_dot", {0, 1}, "1: panels of bf16 and bf16 dot products; 0: panels of floats and FMA"});
  space.admits = [](const Config& config) { return config.get("threads") > 1 || config.get("dynamic") == 0; };
  return space;
}

}  // namespace

std::string CpuPrefill::summary() const {
  return "dequantises panels of weights once into the cache and multiplies them by many tokens; for many tokens an "
         "expert";
}

Space CpuPrefill::space(const Problem&, const Target& target, std::int64_t) const { return prefill_space(target); }

Config CpuPrefill::default_config(const Problem&, const Target& target, std::int64_t) const {
  const std::int64_t threads = processors(target);
  Config config{{{"threads", threads},
                 {"inputs", 3},
                 {"tile_rows", 64},
                 {"k_chunk", 256},
                 {"prefetch", 1},
                 {"dynamic", threads > 1 ? 1 : 0}}};
  if (dots_bf16(target)) config.values.emplace_back("bf16_dot", 1);
  return config;
}

Result<std::unique_ptr<Session>> CpuPrefill::open(const Problem& problem, const Layer& layer,
                                                  const Target& target) const {
  auto choose = [problem, target](const Config& config, std::int64_t) -> Result<TileChoice> {
    MOETUNE_CHECK(check_config(prefill_space(target), config));
    const PrefillShape shape{config.get("tile_rows"), config.get("k_chunk"), config.get("inputs"),
                             dots_bf16(target) && config.get("bf16_dot") != 0};
    TileChoice choice;
    choice.threads = config.get("threads");
    choice.dynamic = config.get("dynamic") != 0;
    choice.prefetch_bytes = config.get("prefetch") != 0 ? std::numeric_limits<std::int64_t>::max() : 0;
    choice.up = prefill_kernel(problem.weights, problem.hidden, shape);
    choice.down = prefill_kernel(problem.weights, problem.intermediate, shape);
    choice.up_rows = std::min(shape.rows, problem.intermediate);
    choice.down_rows = std::min(shape.rows, problem.hidden);
    return choice;
  };
  return std::make_unique<LayerSession>(problem, layer, std::move(choose));
}

}  // namespace moetune
