#include "model/config_view.h"

#include <fmt/format.h>

#include <cmath>

namespace moetune {
namespace {

constexpr std::string_view kParts[] = {"text_config", "language_config", "llm_config", "thinker_config"};
constexpr std::string_view kInnerParts[] = {"ffn_config", "moe"};

}  // namespace

ConfigView::ConfigView(const Json& config) {
  const auto part_of = [](const Json& whole, std::string_view name) -> const Json* {
    const auto found = whole.find(std::string(name));
    return found != whole.end() && found->is_object() ? &*found : nullptr;
  };
  if (!config.is_object()) return;
  std::vector<const Json*> outer;
  for (const auto name : kParts)
    if (const Json* part = part_of(config, name)) {
      outer.push_back(part);
      if (const Json* deeper = part_of(*part, "text_config")) outer.insert(outer.begin(), deeper);
    }
  outer.push_back(&config);
  for (const Json* part : outer) {
    for (const auto name : kInnerParts)
      if (const Json* inner = part_of(*part, name)) parts_.push_back(inner);
    parts_.push_back(part);
  }
}

const Json* ConfigView::find(const Aliases& names) const {
  for (const Json* part : parts_)
    for (const auto name : names)
      if (const auto found = part->find(std::string(name)); found != part->end() && !found->is_null()) return &*found;
  return nullptr;
}

std::string_view ConfigView::name_of(const Aliases& names) const {
  for (const Json* part : parts_)
    for (const auto name : names)
      if (const auto found = part->find(std::string(name)); found != part->end() && !found->is_null()) return name;
  return "";
}

tl::unexpected<Error> bad_value(std::string_view key, const Json& value, const std::string& allowed) {
  std::string shown = dump_json(value);
  if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
  return fail(fmt::format("{}: {}, allowed {}", key, shown, allowed));
}

Result<std::optional<std::int64_t>> ConfigView::integer(const Aliases& names, std::int64_t low,
                                                        std::int64_t high) const {
  const Json* value = find(names);
  if (value == nullptr) return std::optional<std::int64_t>();
  const std::string allowed = fmt::format("is an integer from {} to {}", low, high);
  constexpr std::size_t kLongestList = 100'000;
  if (value->is_array()) {
    if (value->empty() || value->size() > kLongestList) return bad_value(name_of(names), *value, allowed);
    for (const auto& item : *value)
      if (item != value->front()) return bad_value(name_of(names), *value, allowed + ", the same for every layer");
    value = &value->front();
  }
  std::int64_t result = 0;
  if (!value->is_number_integer() || !from_json(*value, result) || result < low || result > high)
    return bad_value(name_of(names), *value, allowed);
  return std::optional<std::int64_t>(result);
}

Result<std::optional<double>> ConfigView::number(const Aliases& names, double low, double high) const {
  const Json* value = find(names);
  if (value == nullptr) return std::optional<double>();
  const double result = value->is_number() ? value->get<double>() : std::nan("");
  if (!(result >= low && result <= high))
    return bad_value(name_of(names), *value, fmt::format("is a number from {} to {}", low, high));
  return std::optional<double>(result);
}

Result<std::optional<bool>> ConfigView::boolean(const Aliases& names) const {
  const Json* value = find(names);
  if (value == nullptr) return std::optional<bool>();
  if (value->is_boolean()) return std::optional<bool>(value->get<bool>());
  if (value->is_number() && (value->get<double>() == 0 || value->get<double>() == 1))
    return std::optional<bool>(value->get<double>() == 1);
  return bad_value(name_of(names), *value, "are true and false");
}

Result<std::optional<std::string>> ConfigView::text(const Aliases& names) const {
  const Json* value = find(names);
  if (value == nullptr) return std::optional<std::string>();
  constexpr std::size_t kLongest = 200;
  if (!value->is_string() || value->get_ref<const std::string&>().size() > kLongest)
    return bad_value(name_of(names), *value, fmt::format("is a text of at most {} bytes", kLongest));
  return std::optional<std::string>(value->get<std::string>());
}

Result<std::optional<std::vector<std::int64_t>>> ConfigView::integers(const Aliases& names, std::int64_t low,
                                                                      std::int64_t high, std::size_t most) const {
  const Json* value = find(names);
  if (value == nullptr) return std::optional<std::vector<std::int64_t>>();
  const std::string allowed = fmt::format("is a list of at most {} integers from {} to {}", most, low, high);
  if (!value->is_array() || value->size() > most) return bad_value(name_of(names), *value, allowed);
  std::vector<std::int64_t> result;
  for (const auto& item : *value) {
    std::int64_t one = 0;
    if (!item.is_number_integer() || !from_json(item, one) || one < low || one > high)
      return bad_value(name_of(names), item, allowed);
    result.push_back(one);
  }
  return std::optional(std::move(result));
}

}  // namespace moetune
