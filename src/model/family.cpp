#include "model/family.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>

#include "model/embedded_data.h"

namespace moetune {
namespace {

/// Reads the fields of one [[family]] table; what is left over at the end is unknown.
class TableReader {
 public:
  explicit TableReader(const toml::table& table) : table_(table) {}

  template <class T>
  void value(std::string_view key, std::optional<T>& out) {
    known_.push_back(key);
    const auto* node = table_.get(key);
    if (node == nullptr) return;
    if (std::is_same_v<T, double> && node->is_integer())
      out = node->value<T>();
    else
      out = node->value_exact<T>();
    if (!out) complain(key, "has the wrong type");
  }
  template <NamedEnum E>
  void name(std::string_view key, std::optional<E>& out) {
    std::optional<std::string> text;
    value(key, text);
    if (!text) return;
    out = parse_enum<E>(*text);
    if (!out) complain(key, fmt::format("'{}' is not known", *text));
  }
  void texts(std::string_view key, std::vector<std::string>& out) {
    known_.push_back(key);
    const auto* list = table_.get_as<toml::array>(key);
    if (list == nullptr || list->empty()) return complain(key, "is a list of names");
    for (const auto& item : *list)
      if (const auto text = item.value_exact<std::string>())
        out.push_back(*text);
      else
        complain(key, "is a list of names");
  }
  [[nodiscard]] std::string problem() {
    for (const auto& [key, node] : table_)
      if (std::find(known_.begin(), known_.end(), key.str()) == known_.end())
        complain(key.str(), "is not a known field");
    return problem_;
  }

 private:
  void complain(std::string_view key, std::string_view what) {
    if (problem_.empty()) problem_ = fmt::format("line {}: {} {}", table_.source().begin.line, key, what);
  }
  const toml::table& table_;
  std::vector<std::string_view> known_;
  std::string problem_;
};

}  // namespace

Result<std::vector<Family>> parse_families(std::string_view text, std::string_view file) {
  toml::table table;
  try {
    table = toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    return fail(fmt::format("{}: line {}: {}", file, error.source().begin.line, error.description()));
  }
  const auto* list = table.get_as<toml::array>("family");
  if (list == nullptr) return fail(fmt::format("{}: no [[family]]", file));
  std::vector<Family> families;
  for (const auto& node : *list) {
    if (!node.is_table()) return fail(fmt::format("{}: [[family]] is a table", file));
    TableReader reader(*node.as_table());
    Family family;
    reader.texts("types", family.types);
    reader.name("score", family.score);
    reader.value("correction_bias", family.correction_bias);
    reader.value("renormalize", family.renormalize);
    reader.value("weight_on_input", family.weight_on_input);
    reader.value("gated", family.gated);
    reader.value("expert_bias", family.expert_bias);
    reader.name("group_score", family.group_score);
    reader.value("scaling", family.scaling);
    reader.value("alpha", family.alpha);
    reader.value("limit", family.limit);
    reader.name("activation", family.activation);
    reader.name("limited", family.limited);
    reader.value("experts_width", family.experts_width);
    reader.value("shared_width", family.shared_width);
    reader.value("shared_experts", family.shared_experts);
    if (const auto problem = reader.problem(); !problem.empty()) return fail(fmt::format("{}: {}", file, problem));
    families.push_back(std::move(family));
  }
  return families;
}

const Family* find_family(std::string_view model_type) {
  static const std::vector<Family> families = [] {
    const auto& file = family_data().front();
    return parse_families(file.text, file.name)
        .value_or(std::vector<Family>());  // the shipped file is checked by a test
  }();
  for (const auto& family : families)
    if (std::find(family.types.begin(), family.types.end(), model_type) != family.types.end()) return &family;
  return nullptr;
}

}  // namespace moetune
