// The compiler's words: what to keep of its log, and what a failure means.
#pragma once

#include <string>
#include <string_view>

#include "base/reason.h"

namespace moetune::cuda {

/// The log without what the assembler's -v reports of every kernel; at most 16 kB.
[[nodiscard]] std::string warnings_of(std::string_view log);

/// The lines that say what is wrong, in one line of at most 2 kB, "; " between them; the rest of the log but for the
/// report where none does. Empty where there are no words at all.
[[nodiscard]] std::string errors_of(std::string_view log);

/// Why the program was refused for the target: arch, shared_memory, or toolchain. `compiler` is "NVRTC 13.0".
[[nodiscard]] Reason reason_of(std::string_view log, const std::string& target, const std::string& compiler);

}  // namespace moetune::cuda
