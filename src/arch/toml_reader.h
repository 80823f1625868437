// TOML into structs with a field list (base/fields.h), strictly: a key that the struct does not have is an error, and
// so is a wrong type. Fields that are std::optional or std::vector may be absent, all others must be there.
#pragma once

#include <fmt/format.h>

#include <toml++/toml.h>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/embedded.h"
#include "base/error.h"
#include "base/fields.h"

namespace moetune {

/// Limits of a data file. The largest one shipped has 31 KB.
inline constexpr std::size_t kMaxDataFileBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxTextBytes = 1000;
inline constexpr std::size_t kMaxListEntries = 1000;

namespace detail {

template <class T>
inline constexpr bool kMayBeAbsent = false;
template <class T>
inline constexpr bool kMayBeAbsent<std::optional<T>> = true;
template <class T>
inline constexpr bool kMayBeAbsent<std::vector<T>> = true;

[[nodiscard]] std::string_view toml_type_name(const toml::node& node);
[[nodiscard]] Status read_toml_integer(const toml::node& node, std::int64_t& value);
[[nodiscard]] Status read_toml_number(const toml::node& node, double& value);
[[nodiscard]] Status read_toml_text(const toml::node& node, std::string& value);
[[nodiscard]] Status read_toml_date(const toml::node& node, std::chrono::year_month_day& value);

}  // namespace detail

/// Reads one file; keeps its name for errors, which read "data/gpus.toml:12: gpu[3].tdp_w: …".
class TomlReader {
 public:
  explicit TomlReader(std::string_view file) : file_(file) {}

  /// The whole document. Size, nesting and list lengths are bounded.
  template <class T>
  [[nodiscard]] Status read_document(std::string_view text, T& value) const {
    MOETUNE_TRY(const toml::table table, parse(text));
    return read_table(table, "", value);
  }

  /// An Error at a line of this file.
  [[nodiscard]] tl::unexpected<Error> fail_at(std::int64_t line, std::string_view field, std::string_view what) const {
    return fail(fmt::format("{}:{}: {}{}{}", file_, line, field, field.empty() ? "" : ": ", what));
  }

 private:
  [[nodiscard]] Result<toml::table> parse(std::string_view text) const;

  template <class T>
  [[nodiscard]] Status read_table(const toml::table& table, const std::string& where, T& value) const {
    const auto line = static_cast<std::int64_t>(table.source().begin.line);
    if constexpr (requires { value.line; }) value.line = line;
    Status status;
    std::vector<std::string_view> known;
    T::fields(value, [&](std::string_view name, auto& field) {
      known.push_back(name);
      if (!status) return;
      const std::string path = where.empty() ? std::string(name) : fmt::format("{}.{}", where, name);
      if (const toml::node* node = table.get(name))
        status = read_node(*node, path, field);
      else if (!detail::kMayBeAbsent<std::remove_reference_t<decltype(field)>>)
        status = fail_at(line, path, "is missing");
    });
    if (!status) return status;
    return refuse_unknown_keys(table, where, known);
  }

  template <class T>
  [[nodiscard]] Status read_node(const toml::node& node, const std::string& where, T& value) const {
    Status status;
    if constexpr (HasFields<T>) {
      if (const auto* table = node.as_table()) return read_table(*table, where, value);
      status = fail(fmt::format("expected a table, found {}", detail::toml_type_name(node)));
    } else if constexpr (NamedEnum<T>) {
      std::string text;
      status = detail::read_toml_text(node, text);
      const auto parsed = parse_enum<T>(text);
      if (status && !parsed)
        status = fail(fmt::format("'{}' is none of {}", text, fmt::join(EnumNames<T>::names, ", ")));
      value = parsed.value_or(T{});
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      status = detail::read_toml_integer(node, value);
    } else if constexpr (std::is_same_v<T, double>) {
      status = detail::read_toml_number(node, value);
    } else if constexpr (std::is_same_v<T, std::chrono::year_month_day>) {
      status = detail::read_toml_date(node, value);
    } else {
      static_assert(std::is_same_v<T, std::string>, "teach TomlReader this type");
      status = detail::read_toml_text(node, value);
    }
    if (status) return {};
    return fail_at(static_cast<std::int64_t>(node.source().begin.line), where, status.error().what);
  }

  template <class T>
  [[nodiscard]] Status read_node(const toml::node& node, const std::string& where, std::optional<T>& value) const {
    return read_node(node, where, value.emplace());
  }

  template <class T>
  [[nodiscard]] Status read_node(const toml::node& node, const std::string& where, std::vector<T>& value) const {
    const auto line = static_cast<std::int64_t>(node.source().begin.line);
    const auto* array = node.as_array();
    if (!array) return fail_at(line, where, fmt::format("expected a list, found {}", detail::toml_type_name(node)));
    if (array->size() > kMaxListEntries)
      return fail_at(line, where, fmt::format("{} entries exceed the limit of {}", array->size(), kMaxListEntries));
    value.clear();
    for (const auto& item : *array) {
      T inner{};
      MOETUNE_CHECK(read_node(item, fmt::format("{}[{}]", where, value.size()), inner));
      value.push_back(std::move(inner));
    }
    return {};
  }

  [[nodiscard]] Status refuse_unknown_keys(const toml::table& table, const std::string& where,
                                           const std::vector<std::string_view>& known) const;

  std::string file_;
};

}  // namespace moetune
