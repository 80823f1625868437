// The one answer type. "Can this backend run this layer here?" is answered by a list of Reasons; an empty list means
// yes.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace moetune {

enum class ReasonCode {
  arch,
  toolchain,
  driver,
  library,
  weight_format,
  activation_format,
  activation_function,
  routing,
  shape,
  parallelism,
  shared_memory,
  memory,
  flag,
  known_bad,
  unknown
};

template <>
struct EnumNames<ReasonCode> {
  static constexpr std::array<std::string_view, 15> names = {"arch",
                                                             "toolchain",
                                                             "driver",
                                                             "library",
                                                             "weight_format",
                                                             "activation_format",
                                                             "activation_function",
                                                             "routing",
                                                             "shape",
                                                             "parallelism",
                                                             "shared_memory",
                                                             "memory",
                                                             "flag",
                                                             "known_bad",
                                                             "unknown"};
};

/// Why something cannot run. `have` against `need` in the same terms, e.g. have "intermediate 96", need "a multiple of
/// 16".
struct Reason {
  ReasonCode code = ReasonCode::unknown;
  std::string have;
  std::string need;
  std::string hint;    ///< what would make it run; may be empty
  std::string source;  ///< where the condition is known from, e.g. "src/cpu/decode.cpp" or a link

  bool operator==(const Reason&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("code", self.code);
    visit("have", self.have);
    visit("need", self.need);
    visit("hint", self.hint);
    visit("source", self.source);
  }
};

/// All blocking reasons, not the first. Empty: nothing blocks.
using Reasons = std::vector<Reason>;

/// How an answer is known. A higher rung overrides a lower one.
enum class Evidence { rules, compiles, runs, serves };

template <>
struct EnumNames<Evidence> {
  static constexpr std::array<std::string_view, 4> names = {"rules", "compiles", "runs", "serves"};
};

}  // namespace moetune
