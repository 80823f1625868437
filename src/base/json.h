// JSON that came from outside is hostile: size and depth are bounded and every failure is an Error. Structs with a
// field list (base/fields.h) convert both ways without further code.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fields.h"

namespace moetune {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  std::size_t max_bytes = std::size_t{64} << 20;
  int max_depth = 64;
};

/// Parses one JSON document. Errors name the byte offset, the size or the depth that broke the limit; duplicate keys:
/// the last wins. NaN, Infinity and -Infinity, which Python writes, are read as null.
[[nodiscard]] Result<Json> parse_json(std::string_view text, JsonLimits limits = {});

/// parse_json of a file, the error prefixed with its path.
[[nodiscard]] Result<Json> read_json(const std::string& path, JsonLimits limits = {});

/// One line, invalid UTF-8 replaced, non-finite numbers written as null.
[[nodiscard]] std::string dump_json(const Json& json);
/// The same, indented by two for people.
[[nodiscard]] std::string dump_json_pretty(const Json& json);

/// 128-bit content hash (XXH3) of text, 32 hexadecimal digits. Not cryptographic: names cache entries, proves nothing.
[[nodiscard]] std::string content_hash(std::string_view text);

// ---------------------------------------------------------------------------------------------------------------- to
// JSON

/// A type whose JSON is not its field list: `Json json() const` and `Status read_json(const Json&)`.
template <class T>
concept OwnJson = requires(const T& value, T& target, const Json& json) {
  { value.json() } -> std::same_as<Json>;
  { target.read_json(json) } -> std::same_as<Status>;
};

template <class T>
[[nodiscard]] Json to_json(const T& value);

namespace detail {
template <class T>
struct ToJson {
  static Json write(const T& value) {
    if constexpr (OwnJson<T>) {
      return value.json();
    } else if constexpr (NamedEnum<T>) {
      return Json(std::string(to_string(value)));
    } else if constexpr (HasFields<const T>) {
      Json object = Json::object();
      T::fields(value,
                [&object](std::string_view name, const auto& field) { object[std::string(name)] = to_json(field); });
      return object;
    } else {
      return Json(value);
    }
  }
};
template <class T>
struct ToJson<std::optional<T>> {
  static Json write(const std::optional<T>& value) { return value ? to_json(*value) : Json(nullptr); }
};
template <class T>
struct ToJson<std::vector<T>> {
  static Json write(const std::vector<T>& values) {
    Json array = Json::array();
    for (const auto& value : values) array.push_back(to_json(value));
    return array;
  }
};
}  // namespace detail

template <class T>
Json to_json(const T& value) {
  return detail::ToJson<T>::write(value);
}

/// The same content always gives the same key: content_hash of the compact JSON.
template <class T>
[[nodiscard]] std::string cache_key(const T& value) {
  return content_hash(dump_json(to_json(value)));
}

// -------------------------------------------------------------------------------------------------------------- from
// JSON

/// Reads `json` into `value`. Integers must be integers in range, enums known names; the error says the path and what
/// was found. A field that is absent keeps the value it has.
template <class T>
[[nodiscard]] Status from_json(const Json& json, T& value);

namespace detail {
[[nodiscard]] Error json_type_error(const Json& json, std::string_view wanted);
[[nodiscard]] Status read_integer(const Json& json, std::int64_t low, std::uint64_t high, std::int64_t& value);

template <class T>
struct FromJson {
  static Status read(const Json& json, T& value) {
    if constexpr (OwnJson<T>) {
      return value.read_json(json);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) return tl::unexpected(json_type_error(json, "true or false"));
      value = json.template get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      std::int64_t wide = 0;
      MOETUNE_CHECK(read_integer(json, static_cast<std::int64_t>(std::numeric_limits<T>::min()),
                                 static_cast<std::uint64_t>(std::numeric_limits<T>::max()), wide));
      value = static_cast<T>(wide);
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!json.is_number()) return tl::unexpected(json_type_error(json, "a number"));
      value = json.template get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) return tl::unexpected(json_type_error(json, "a string"));
      value = json.template get<std::string>();
    } else if constexpr (std::is_same_v<T, Json>) {
      value = json;
    } else if constexpr (NamedEnum<T>) {
      if (!json.is_string()) return tl::unexpected(json_type_error(json, "a name"));
      const auto parsed = parse_enum<T>(json.template get<std::string>());
      if (!parsed) return tl::unexpected(json_type_error(json, "a known name"));
      value = *parsed;
    } else {
      static_assert(HasFields<T>, "give the struct a field list (base/fields.h)");
      if (!json.is_object()) return tl::unexpected(json_type_error(json, "an object"));
      Status status;
      T::fields(value, [&](std::string_view name, auto& field) {
        const auto found = json.find(std::string(name));
        if (!status || found == json.end()) return;
        if (auto inner = from_json(*found, field); !inner) status = fail_in(std::string(name), inner.error());
      });
      return status;
    }
    return {};
  }
};
template <class T>
struct FromJson<std::optional<T>> {
  static Status read(const Json& json, std::optional<T>& value) {
    if (json.is_null()) {
      value.reset();
      return {};
    }
    T inner{};
    MOETUNE_CHECK(from_json(json, inner));
    value = std::move(inner);
    return {};
  }
};
template <class T>
struct FromJson<std::vector<T>> {
  static Status read(const Json& json, std::vector<T>& value) {
    if (!json.is_array()) return tl::unexpected(json_type_error(json, "a list"));
    value.clear();
    for (const auto& item : json) {
      T inner{};
      if (auto status = from_json(item, inner); !status)
        return fail_in("[" + std::to_string(value.size()) + "]", status.error());
      value.push_back(std::move(inner));
    }
    return {};
  }
};
}  // namespace detail

template <class T>
Status from_json(const Json& json, T& value) {
  return detail::FromJson<T>::read(json, value);
}

}  // namespace moetune
