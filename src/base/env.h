// The one list of environment variables that moetune reads.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/fields.h"

namespace moetune {

enum class Env { home, xdg_cache, user_home, log, no_color };

template <>
struct EnumNames<Env> {
  static constexpr std::array<std::string_view, 5> names = {
      "MOETUNE_HOME",    // folder for stored results and compiled kernels
      "XDG_CACHE_HOME",  // its parent where MOETUNE_HOME is not set
      "HOME",            // the last resort for the same
      "MOETUNE_LOG",     // trace, debug, info, warn (the default), error
      "NO_COLOR"         // any value: no colour on the terminal
  };
};

/// The variable's value; nothing where it is unset or empty.
[[nodiscard]] std::optional<std::string> env(Env variable);

}  // namespace moetune
