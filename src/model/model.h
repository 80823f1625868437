// From what the user typed to a Geometry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "model/geometry.h"

namespace moetune {

/// A model as moetune found it.
struct Model {
  Geometry geometry;
  std::string folder;  ///< of the checkpoint; empty for a name from data/models/ or a lone config.json
  std::string origin;  ///< the file it was read from: a path, or "data/models/…" built in
};

/// MODEL on the command line: a Hugging Face folder, a config.json (or params.json), or a name from data/models/ (its
/// repository id, the part after the slash, or a quantised variant such as "GLM-5-NVFP4"; case does not matter). An
/// unknown name lists the nearest.
[[nodiscard]] Result<Model> open_model(const std::string& name_or_path);

/// config.json, with hf_quant_config.json beside it where the checkpoint has one.
[[nodiscard]] Result<Geometry> read_geometry(const Json& config,
                                             const std::optional<Json>& hf_quant_config = std::nullopt);

/// One model of data/models/ as `check` and shell completion list it.
struct KnownModel {
  std::string id;                     ///< "zai-org/GLM-5"
  std::vector<std::string> variants;  ///< names that open_model takes for it, the quantised ones included
};
[[nodiscard]] std::vector<KnownModel> known_models();

}  // namespace moetune
