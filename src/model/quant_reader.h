// How the checkpoint's routed experts are stored: quantization_config in config.json, or hf_quant_config.json beside
// it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "model/geometry.h"

namespace moetune {

/// Fills geometry.weights and geometry.activations, and adds to `assumed` where only part of the layers is meant.
/// Without any description the weights are bf16 (fp16 where torch_dtype says so). Errors: a scheme that is not
/// supported, by its name.
[[nodiscard]] Status read_quantization(const Json& config, const std::optional<Json>& hf_quant_config,
                                       Geometry& geometry);

/// Whether one of the patterns of an exclude list means the module of that name. Patterns are names or their beginnings
/// up to a dot, parts of names, shell patterns with '*', or regular expressions behind "re:"; one that is not valid
/// means nothing.
[[nodiscard]] bool is_excluded(const std::vector<std::string>& patterns, std::string_view module);

}  // namespace moetune
