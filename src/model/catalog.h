// One file of data/models/: a published model's config.json in excerpt, and the quantised copies known of it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace moetune {

struct CatalogModel {
  std::string id;                 ///< repository id
  std::vector<std::string> also;  ///< other published models with the same layer
  std::string source, date, confidence;
  std::vector<std::pair<std::string, Json>>
      variants;  ///< name and {"quantization_config": …} or {"hf_quant_config": …}
  Json config;
  std::string file;
};

/// Errors name the file and the field: an unknown one, a missing one, one of the wrong type.
[[nodiscard]] Result<CatalogModel> parse_catalog_model(std::string_view text, std::string_view file);

}  // namespace moetune
