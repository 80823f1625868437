// JSON read as a stream of events, for documents that may hold hundreds of thousands of keys: nothing is built, keys
// that repeat are seen, and what is not wanted costs no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"

namespace moetune {

/// A value that is neither object nor list. Integers are unsigned unless they have a minus sign; strings are valid
/// UTF-8.
using JsonScalar = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string_view>;

/// What visit_json calls. `depth` is the number of objects and lists that are open, the one concerned included. The
/// first error ends the visit.
class JsonVisitor {
 public:
  JsonVisitor() = default;
  JsonVisitor(const JsonVisitor&) = delete;
  JsonVisitor& operator=(const JsonVisitor&) = delete;
  virtual ~JsonVisitor() = default;

  virtual Status begin(int depth, bool object) = 0;
  virtual Status end(int depth) = 0;
  virtual Status key(int depth, std::string_view key) = 0;
  virtual Status value(int depth, const JsonScalar& value) = 0;
};

/// Parses one JSON document. Errors: the visitor's own; syntax, with the byte; nested deeper than max_depth.
[[nodiscard]] Status visit_json(std::string_view text, int max_depth, JsonVisitor& visitor);

/// `text` as it may stand in a message: as it is where it is short printable ASCII, otherwise quoted, escaped and cut.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace moetune
