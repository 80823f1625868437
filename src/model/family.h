// What holds for a model family where its config.json says nothing: data/families.toml.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/geometry.h"

namespace moetune {

struct Family {
  std::vector<std::string> types;
  std::optional<RouterScore> score;
  std::optional<bool> correction_bias, renormalize, weight_on_input, gated, expert_bias;
  std::optional<GroupScore> group_score;
  std::optional<double> scaling, alpha, limit;
  std::optional<ActivationKind> activation;
  std::optional<ActivationKind> limited;  ///< the activation where the config has swiglu_limit
  std::optional<std::string> experts_width, shared_width;
  std::optional<std::int64_t> shared_experts;
};

/// Reads the file's text. Errors name the line or the entry and the field.
[[nodiscard]] Result<std::vector<Family>> parse_families(std::string_view toml, std::string_view file);

/// The built-in family of that model_type, or null.
[[nodiscard]] const Family* find_family(std::string_view model_type);

}  // namespace moetune
