#include "model/catalog.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune {

Result<CatalogModel> parse_catalog_model(std::string_view text, std::string_view file) {
  const std::string where(file);
  auto json = parse_json(text);
  if (!json) return fail_in(where, json.error());
  if (!json->is_object()) return fail(where + ": not an object");
  constexpr std::string_view kFields[] = {"id", "also", "source", "date", "confidence", "variants", "config"};
  for (const auto& [key, value] : json->items()) {
    (void)value;
    if (std::find(std::begin(kFields), std::end(kFields), key) == std::end(kFields))
      return fail(fmt::format("{}: unknown field {}", where, key));
  }
  CatalogModel model;
  model.file = where;
  const auto read = [&](const char* key, auto& out) -> Status {
    const auto found = json->find(key);
    if (found == json->end()) return fail(fmt::format("{}: no field {}", where, key));
    if (auto status = from_json(*found, out); !status)
      return fail_in(fmt::format("{}: {}", where, key), status.error());
    return {};
  };
  Json variants;
  MOETUNE_CHECK(read("id", model.id));
  MOETUNE_CHECK(read("also", model.also));
  MOETUNE_CHECK(read("source", model.source));
  MOETUNE_CHECK(read("date", model.date));
  MOETUNE_CHECK(read("confidence", model.confidence));
  MOETUNE_CHECK(read("variants", variants));
  MOETUNE_CHECK(read("config", model.config));
  if (!variants.is_object() || !model.config.is_object()) return fail(where + ": variants and config are objects");
  for (const auto& [name, variant] : variants.items()) {
    if (!variant.is_object() || variant.size() != 1 ||
        (!variant.contains("quantization_config") && !variant.contains("hf_quant_config")))
      return fail(fmt::format("{}: variants: {} holds one of quantization_config and hf_quant_config", where, name));
    model.variants.emplace_back(name, variant);
  }
  return model;
}

}  // namespace moetune
