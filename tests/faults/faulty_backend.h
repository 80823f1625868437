// Backends that exist only in tests: each does one thing that a backend must not do.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "backend/backend.h"
#include "base/fields.h"

namespace moetune {

/// What a candidate does, in Session::run unless said. The value of "fault" in its config.
enum class Fault {
  none,
  segfaults,
  segfaults_in_configure,
  aborts,
  exits,
  kills_itself,  ///< SIGKILL, as the system does for want of memory
  hangs,
  hangs_in_configure,
  ignores_sigterm,
  spins,
  stops_itself,  ///< SIGSTOP
  throws,
  throws_a_number,
  fails,
  cannot_configure,
  says_out_of_memory,
  answers_nan,
  answers_wrongly,
  one_value_wrong,
  right_once,
  writes_nothing,
  writes_beside,
  writes_into_weights,
  prints,
  prints_on_protocol,
  endless_line,
  floods_log,
  closes_pipe,
  leaves_a_process,
  leaves_a_process_and_dies,
  allocates_without_end,
  allocates_in_a_thread,
  lying_clock,
  crashes_in_third_configure,
  throws_in_third_configure
};

template <>
struct EnumNames<Fault> {
  static constexpr std::array<std::string_view, 35> names = {"none",
                                                             "segfaults",
                                                             "segfaults_in_configure",
                                                             "aborts",
                                                             "exits",
                                                             "kills_itself",
                                                             "hangs",
                                                             "hangs_in_configure",
                                                             "ignores_sigterm",
                                                             "spins",
                                                             "stops_itself",
                                                             "throws",
                                                             "throws_a_number",
                                                             "fails",
                                                             "cannot_configure",
                                                             "says_out_of_memory",
                                                             "answers_nan",
                                                             "answers_wrongly",
                                                             "one_value_wrong",
                                                             "right_once",
                                                             "writes_nothing",
                                                             "writes_beside",
                                                             "writes_into_weights",
                                                             "prints",
                                                             "prints_on_protocol",
                                                             "endless_line",
                                                             "floods_log",
                                                             "closes_pipe",
                                                             "leaves_a_process",
                                                             "leaves_a_process_and_dies",
                                                             "allocates_without_end",
                                                             "allocates_in_a_thread",
                                                             "lying_clock",
                                                             "crashes_in_third_configure",
                                                             "throws_in_third_configure"};
};

/// "test:faulty" does what "fault" says and claims that a call takes "us" microseconds. "test:dies_in_open",
/// "test:dies_in_why_not" and "test:refuses" do so whatever the config.
[[nodiscard]] Registry faulty_registry();

/// A config of test:faulty.
[[nodiscard]] Config faulty_config(Fault fault, std::int64_t us);

}  // namespace moetune
