// Any text as a config.json, what follows a zero byte as the hf_quant_config.json beside it; then the model is cut.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "model/model.h"
#include "model/problem.h"

namespace moetune {
namespace {

void require(bool promise) {
  if (!promise) __builtin_trap();
}

void fuzz_config(std::string_view text) {
  const std::size_t zero = text.find('\0');
  const auto config = parse_json(text.substr(0, zero));
  if (!config) return;
  std::optional<Json> quantization;
  if (zero != std::string_view::npos)
    if (auto parsed = parse_json(text.substr(zero + 1))) quantization = *std::move(parsed);
  const auto geometry = read_geometry(*config, quantization);
  if (!geometry) {
    require(!geometry.error().what.empty());
    return;
  }
  require(geometry->experts > 0 && geometry->top_k > 0 && geometry->top_k <= geometry->experts);
  for (const std::int64_t ways : {1, 2, 3, 8}) {
    (void)cut(*geometry, {ways, 1, ways - 1, 0});
    const auto problem = cut(*geometry, {1, ways, 0, ways - 1});
    if (!problem) continue;
    require(problem->experts * ways == problem->experts_global);
    require(expert_bytes(*problem) > 0 && layer_bytes(*problem, 1, 1) > 0 && layer_flops(*problem, 1) > 0);
  }
}

}  // namespace
}  // namespace moetune

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moetune::fuzz_config({reinterpret_cast<const char*>(data), size});
  return 0;
}
