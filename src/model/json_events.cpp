#include "model/json_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"

namespace moetune {
namespace {

/// The parser's callbacks, handed on to a visitor. The parser itself does not recurse.
class Adapter {
 public:
  Adapter(JsonVisitor& visitor, int max_depth) : visitor_(visitor), max_depth_(max_depth) {}

  bool null() { return value(nullptr); }
  bool boolean(bool v) { return value(v); }
  bool number_integer(std::int64_t v) { return value(v); }
  bool number_unsigned(std::uint64_t v) { return value(v); }
  bool number_float(double v, const std::string&) { return value(v); }
  bool string(std::string& v) { return value(std::string_view(v)); }
  bool binary(Json::binary_t&) { return false; }  // not in text
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) { return take(visitor_.key(depth_, name)); }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) {
    return take(fail(fmt::format("not valid JSON at byte {}", position)));
  }

  [[nodiscard]] Status status() && { return std::move(status_); }

 private:
  bool take(Status status) {
    status_ = std::move(status);
    return status_.has_value();
  }
  bool value(const JsonScalar& v) { return take(visitor_.value(depth_, v)); }
  bool open(bool object) {
    if (depth_ == max_depth_) return take(fail(fmt::format("JSON nested deeper than {} levels", max_depth_)));
    return take(visitor_.begin(++depth_, object));
  }
  bool close() { return take(visitor_.end(depth_--)); }

  JsonVisitor& visitor_;
  int max_depth_ = 0;
  int depth_ = 0;
  Status status_;
};

}  // namespace

Status visit_json(std::string_view text, int max_depth, JsonVisitor& visitor) {
  Adapter adapter(visitor, max_depth);
  Json::sax_parse(text.begin(), text.end(), &adapter);
  return std::move(adapter).status();
}

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 160;
  const auto plain = [](char c) { return c > ' ' && c <= '~' && c != '"' && c != '\\'; };
  const bool cut = text.size() > kLongest;
  if (cut) text = text.substr(0, kLongest);
  std::string shown = !text.empty() && std::all_of(text.begin(), text.end(), plain)
                          ? std::string(text)
                          : dump_json(Json(std::string(text)));
  return cut ? shown + "…" : shown;
}

}  // namespace moetune
