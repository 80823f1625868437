#include "base/json.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/file.h"

namespace moetune {
namespace {

/// Builds the document from the parser's callbacks. The library's own way looks every new key up among those before it:
/// 8 s for 70,000 keys, hours for a hostile million. Here keys are appended, and repeats settled when the object ends.
class DocumentBuilder {
 public:
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not in text
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  bool end_object() {
    keep_last(open_.back()->get_ref<Json::object_t&>());
    open_.pop_back();
    return true;
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& e) {
    error = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    if (const auto bracket = error.find("] "); bracket != std::string::npos) error.erase(0, bracket + 2);
    return false;
  }

  Json document;
  std::string error;

 private:
  /// Where the value went. A container does not grow while one inside it is open, so that the place stays.
  Json* place(Json value) {
    if (open_.empty()) {
      document = std::move(value);
      return &document;
    }
    if (open_.back()->is_array()) return &open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
    return &open_.back()->get_ref<Json::object_t&>().emplace_back(std::move(key_), std::move(value)).second;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json container) {
    open_.push_back(place(std::move(container)));
    return true;
  }

  /// Of members with the same key the last one's value, at the first one's place.
  static void keep_last(Json::object_t& members) {
    std::unordered_map<std::string_view, Json*> last;
    for (auto& [key, value] : members) last[key] = &value;
    if (last.size() == members.size()) return;
    Json::object_t kept;
    for (auto& [key, value] : members)
      if (const auto found = last.find(key); found->second != nullptr)
        kept.emplace_back(key, std::move(*std::exchange(found->second, nullptr)));
    members.swap(kept);
  }

  std::vector<Json*> open_;
  std::string key_;
};

/// Python's json writes NaN, Infinity and -Infinity, which JSON does not have; config.json of Mamba hybrids holds them.
/// The text with null in their place, strings left alone.
std::string without_non_finite(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords = {"NaN", "Infinity", "-Infinity"};
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    const auto word = std::find_if(kWords.begin(), kWords.end(),
                                   [&](std::string_view w) { return !in_string && text.substr(i).starts_with(w); });
    if (word != kWords.end()) {
      out += "null";
      i += word->size();
      continue;
    }
    if (in_string && text[i] == '\\' && i + 1 < text.size())
      out += text[i++];
    else if (text[i] == '"')
      in_string = !in_string;
    out += text[i++];
  }
  return out;
}

}  // namespace

Result<Json> parse_json(std::string_view text, JsonLimits limits) {
  if (text.size() > limits.max_bytes)
    return fail(fmt::format("{} bytes of JSON exceed the limit of {}", text.size(), limits.max_bytes));
  // The parser does not recurse, but what it builds is destroyed recursively, so the depth is checked first.
  int depth = 0;
  bool in_string = false, non_finite = false;
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
    } else if (c == 'N' || c == 'I') {
      non_finite = true;
    }
  }
  std::string replaced;
  if (non_finite) text = replaced = without_non_finite(text);
  DocumentBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder))
    return fail("not valid JSON: " + dump_json(Json(builder.error)));
  return Result<Json>(tl::in_place, std::move(builder.document));
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
