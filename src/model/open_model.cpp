#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

#include "model/catalog.h"
#include "model/embedded_data.h"
#include "model/model.h"

namespace moetune {
namespace {

constexpr JsonLimits kConfigLimits{std::size_t{16} << 20, 64};
constexpr std::size_t kMaxNameBytes = 4096;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string after_slash(const std::string& id) { return id.substr(id.rfind('/') + 1); }

/// Levenshtein distance of two short names.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

const std::vector<CatalogModel>& catalog() {
  static const std::vector<CatalogModel> models = [] {
    std::vector<CatalogModel> read;
    for (const auto& file : model_data())
      if (auto model = parse_catalog_model(file.text, file.name)) read.push_back(std::move(*model));
    return read;  // the shipped files are checked by a test
  }();
  return models;
}

/// All names that mean the model or one of its variants.
struct Named {
  std::string name;
  const CatalogModel* model;
  const Json* variant;  ///< null: as published
};

std::vector<Named> all_names() {
  std::vector<Named> names;
  for (const auto& model : catalog()) {
    names.push_back({model.id, &model, nullptr});
    for (const auto& also : model.also) names.push_back({also, &model, nullptr});
    for (const auto& [name, variant] : model.variants) names.push_back({name, &model, &variant});
  }
  return names;
}

Result<Model> open_known(const Named& named) {
  Json config = named.model->config;
  std::optional<Json> hf_quant_config;
  if (named.variant != nullptr) {
    config.erase("quantization_config");
    config.erase("expert_dtype");
    if (named.variant->contains("quantization_config"))
      config["quantization_config"] = (*named.variant)["quantization_config"];
    if (named.variant->contains("hf_quant_config")) hf_quant_config = (*named.variant)["hf_quant_config"];
  }
  auto geometry = read_geometry(config, hf_quant_config);
  if (!geometry) return fail_in(named.model->file, geometry.error());
  geometry->model = after_slash(named.name);
  return Model{std::move(*geometry), "", named.model->file + ", built in"};
}

Result<Model> open_file(const std::string& path) {
  MOETUNE_TRY(const Json config, read_json(path, kConfigLimits));
  const auto folder = std::filesystem::path(path).parent_path();
  std::optional<Json> hf_quant_config;
  const auto beside = folder / "hf_quant_config.json";
  std::error_code problem;
  if (std::filesystem::is_regular_file(beside, problem)) {
    MOETUNE_TRY(hf_quant_config, read_json(beside.string(), kConfigLimits));
  }
  auto geometry = read_geometry(config, hf_quant_config);
  if (!geometry) return fail_in(path, geometry.error());
  const auto whole = std::filesystem::absolute(folder, problem).lexically_normal();
  geometry->model = whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
  return Model{std::move(*geometry), folder.empty() ? "." : folder.string(), path};
}

tl::unexpected<Error> unknown(const std::string& name) {
  const std::string wanted = lower(after_slash(name)).substr(0, 100);
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const auto& named : all_names())
    near.emplace_back(distance(wanted, lower(after_slash(named.name))), after_slash(named.name));
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  std::string list;
  for (std::size_t i = 0; i < near.size() && i < 5; ++i) list += (list.empty() ? "" : ", ") + near[i].second;
  return fail(fmt::format("'{}' is neither a folder with a config.json nor a known model", name.substr(0, 200)),
              {"nearest known names: " + list, "or give the path of a Hugging Face folder or of its config.json"});
}

}  // namespace

Result<Model> open_model(const std::string& name) {
  if (name.empty() || name.size() > kMaxNameBytes) return fail("no model given");
  std::error_code problem;
  if (std::filesystem::is_directory(name, problem)) {
    for (const char* file : {"config.json", "params.json"})
      if (const auto path = std::filesystem::path(name) / file; std::filesystem::exists(path, problem))
        return open_file(path.string());
    return fail(fmt::format("{}: a folder without config.json", name));
  }
  if (std::filesystem::exists(name, problem)) return open_file(name);
  const std::string wanted = lower(name);
  for (const auto& named : all_names())
    if (lower(named.name) == wanted || lower(after_slash(named.name)) == wanted) return open_known(named);
  return unknown(name);
}

std::vector<KnownModel> known_models() {
  std::vector<KnownModel> models;
  for (const auto& model : catalog()) {
    KnownModel known{model.id, model.also};
    for (const auto& variant : model.variants) known.variants.push_back(variant.first);
    models.push_back(std::move(known));
  }
  return models;
}

}  // namespace moetune
