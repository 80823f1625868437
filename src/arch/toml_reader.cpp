#include "arch/toml_reader.h"

#include <algorithm>

#include "arch/names.h"

namespace moetune {
namespace detail {
namespace {

tl::unexpected<Error> wrong_type(std::string_view wanted, const toml::node& node) {
  return fail(fmt::format("expected {}, found {}", wanted, toml_type_name(node)));
}

}  // namespace

std::string_view toml_type_name(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  if (node.is_string()) return "a text";
  if (node.is_integer()) return "an integer";
  if (node.is_floating_point()) return "a number with a point";
  if (node.is_boolean()) return "true or false";
  return "a date or time";
}

Status read_toml_integer(const toml::node& node, std::int64_t& value) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 53;  // exact in JSON readers too
  const auto* found = node.as_integer();
  if (!found) return wrong_type("an integer", node);
  if (found->get() < 0 || found->get() > kLargest)
    return fail(fmt::format("{} is outside 0 … {}", found->get(), kLargest));
  value = found->get();
  return {};
}

Status read_toml_number(const toml::node& node, double& value) {
  constexpr double kLargest = 1e15;
  if (!node.is_number()) return wrong_type("a number", node);
  const double found = node.value<double>().value_or(-1.0);
  if (!std::isfinite(found) || found <= 0 || found > kLargest)
    return fail(fmt::format("{} is outside 0 … {}, 0 excluded", found, kLargest));
  value = found;
  return {};
}

Status read_toml_text(const toml::node& node, std::string& value) {
  const auto* found = node.as_string();
  if (!found) return wrong_type("a text", node);
  if (found->get().empty()) return fail("is an empty text");
  if (found->get().size() > kMaxTextBytes)
    return fail(fmt::format("a text of {} bytes exceeds the limit of {}", found->get().size(), kMaxTextBytes));
  value = found->get();
  return {};
}

Status read_toml_date(const toml::node& node, std::chrono::year_month_day& value) {
  const auto* found = node.as_date();
  if (!found) return wrong_type("a date such as 2026-08-24", node);
  value = {std::chrono::year(found->get().year), std::chrono::month(found->get().month),
           std::chrono::day(found->get().day)};
  return {};
}

}  // namespace detail

Result<toml::table> TomlReader::parse(std::string_view text) const {
  if (text.size() > kMaxDataFileBytes)
    return fail(fmt::format("{}: {} bytes exceed the limit of {}", file_, text.size(), kMaxDataFileBytes));
  try {
    return toml::parse(text, std::string_view(file_));
  } catch (const toml::parse_error& error) {
    return fail_at(static_cast<std::int64_t>(error.source().begin.line), "", error.description());
  }
}

Status TomlReader::refuse_unknown_keys(const toml::table& table, const std::string& where,
                                       const std::vector<std::string_view>& known) const {
  for (const auto& [key, node] : table) {
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    auto error = fail_at(static_cast<std::int64_t>(node.source().begin.line), where,
                         fmt::format("unknown key {}", quoted_name(key.str())));
    error.value().hints.push_back(fmt::format("known keys: {}", fmt::join(known, ", ")));
    return error;
  }
  return {};
}

}  // namespace moetune
