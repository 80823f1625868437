#include "base/json.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/file.h"

namespace moetune {

Result<Json> parse_json(std::string_view text, JsonLimits limits) {
  if (text.size() > limits.max_bytes)
    return fail(fmt::format("{} bytes of JSON exceed the limit of {}", text.size(), limits.max_bytes));
  // The callback cannot stop the parser, so the depth is checked first; the library's parser itself does not recurse.
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limits.max_depth)
        return fail(fmt::format("JSON nested deeper than {} levels at byte {}", limits.max_depth, i));
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  try {
    return Result<Json>(tl::in_place, Json::parse(text));
  } catch (const Json::exception& e) {
    std::string what = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    if (const auto bracket = what.find("] "); bracket != std::string::npos) what.erase(0, bracket + 2);
    return fail("not valid JSON: " + dump_json(Json(what)));
  }
}

Result<Json> read_json(const std::string& path, JsonLimits limits) {
  MOETUNE_TRY(const auto text, read_file(path, limits.max_bytes));
  auto json = parse_json(text, limits);
  if (!json) return fail_in(path, std::move(json).error());
  return json;
}

std::string dump_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string dump_json_pretty(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

std::string content_hash(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

namespace detail {

Error json_type_error(const Json& json, std::string_view wanted) {
  std::string found = dump_json(json);
  if (found.size() > 60) found = found.substr(0, 57) + "...";
  return Error{fmt::format("expected {}, found {}", wanted, found), {}, ErrorKind::other};
}

Status read_integer(const Json& json, std::int64_t low, std::uint64_t high, std::int64_t& value) {
  const auto out_of_range = [&] {
    return tl::unexpected(json_type_error(json, fmt::format("an integer from {} to {}", low, high)));
  };
  if (json.is_number_unsigned()) {
    const auto wide = json.get<std::uint64_t>();
    if (wide > high) return out_of_range();
    value = static_cast<std::int64_t>(wide);
  } else if (json.is_number_integer()) {
    value = json.get<std::int64_t>();
    if (value < low || (value > 0 && static_cast<std::uint64_t>(value) > high)) return out_of_range();
  } else {
    return tl::unexpected(json_type_error(json, "an integer"));
  }
  return {};
}

}  // namespace detail
}  // namespace moetune
