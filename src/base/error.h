// Errors are values: what happened, with the numbers, then what to do about it.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace moetune {

/// What a caller may want to tell apart without reading the words.
enum class ErrorKind {
  other,
  out_of_memory,
  device_lost  ///< nothing works on the device any more in this process; a new process may use it
};

/// Something the caller asked for could not be done.
struct Error {
  std::string what;                ///< what happened, with the numbers; one line, no trailing full stop
  std::vector<std::string> hints;  ///< what to do next, one sentence each; may be empty
  ErrorKind kind = ErrorKind::other;

  bool operator==(const Error&) const = default;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

/// The failing end of a Result: `return fail("8 experts do not divide by EP 3", {"use --ep 2, 4 or 8"});`
[[nodiscard]] inline tl::unexpected<Error> fail(std::string what, std::vector<std::string> hints = {},
                                                ErrorKind kind = ErrorKind::other) {
  return tl::unexpected<Error>(Error{std::move(what), std::move(hints), kind});
}

/// Passes an error on, with the place it passed through put in front: "config.json: top_k 9 exceeds 8 experts".
[[nodiscard]] inline tl::unexpected<Error> fail_in(const std::string& where, Error error) {
  error.what = where + ": " + error.what;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace moetune

#define MOETUNE_CONCAT_(a, b) a##b
#define MOETUNE_CONCAT(a, b) MOETUNE_CONCAT_(a, b)
#define MOETUNE_TRY_(tmp, declaration, expression)         \
  auto tmp = (expression);                                 \
  if (!tmp) return tl::unexpected(std::move(tmp).error()); \
  declaration = *std::move(tmp)

/// `MOETUNE_TRY(const auto text, read_file(path));` declares `text`, or returns the error from the enclosing function.
#define MOETUNE_TRY(declaration, expression) \
  MOETUNE_TRY_(MOETUNE_CONCAT(try_result_, __LINE__), declaration, expression)

/// The same for a Status.
#define MOETUNE_CHECK(expression)                                                                   \
  do {                                                                                              \
    if (auto check_status = (expression); !check_status)                                            \
      return tl::unexpected(std::move(check_status).error()); /* NOLINT(bugprone-use-after-move) */ \
  } while (false)
