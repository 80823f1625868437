// What became of a candidate. A failure is a result too.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/config.h"
#include "base/fields.h"
#include "base/reason.h"

namespace moetune {

enum class OutcomeStatus {
  ok,
  unsupported,
  compile_failed,
  launch_failed,
  crashed,
  timed_out,
  wrong_result,
  nan,
  out_of_memory,
  throttled,
  skipped
};

template <>
struct EnumNames<OutcomeStatus> {
  static constexpr std::array<std::string_view, 11> names = {
      "ok",           "unsupported", "compile_failed", "launch_failed", "crashed", "timed_out",
      "wrong_result", "nan",         "out_of_memory",  "throttled",     "skipped"};
};

struct Outcome {
  OutcomeStatus status = OutcomeStatus::ok;
  std::vector<double> samples_us;  ///< one per timed call; empty unless ok
  double relative_error = 0;       ///< against the reference
  double tolerance = 0;
  double active_experts = 0;  ///< distinct experts touched, mean over the timed calls
  double pairs = 0;           ///< (token, expert) pairs computed, mean over the timed calls
  std::string diagnosis;      ///< why it is not ok, in words; "killed by signal 11 (Segmentation fault)"
  Reasons reasons;            ///< for unsupported
  std::string log;            ///< the tail of what the worker printed; empty unless it failed

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("status", self.status);
    visit("samples_us", self.samples_us);
    visit("relative_error", self.relative_error);
    visit("tolerance", self.tolerance);
    visit("active_experts", self.active_experts);
    visit("pairs", self.pairs);
    visit("diagnosis", self.diagnosis);
    visit("reasons", self.reasons);
    visit("log", self.log);
  }
};

}  // namespace moetune
