// The one list of environment variables that moetune reads.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/fields.h"

namespace moetune {

enum class Env { home, xdg_cache, user_home, log, no_color, nvrtc, cuda_driver, nvml, cuda_home, cuda_path, path };

template <>
struct EnumNames<Env> {
  static constexpr std::array<std::string_view, 11> names = {
      "MOETUNE_HOME",         // folder for stored results and compiled kernels
      "XDG_CACHE_HOME",       // its parent where MOETUNE_HOME is not set
      "HOME",                 // the last resort for the same
      "MOETUNE_LOG",          // trace, debug, info, warn (the default), error
      "NO_COLOR",             // any value: no colour on the terminal
      "MOETUNE_NVRTC",        // CUDA's run-time compiler: the library or its folder; nothing else is tried then
      "MOETUNE_CUDA_DRIVER",  // the same for libcuda.so.1
      "MOETUNE_NVML",         // the same for libnvidia-ml.so.1
      "CUDA_HOME",            // a CUDA toolkit, searched for the compiler
      "CUDA_PATH",            // another name for the same
      "PATH"                  // Python prefixes on it are searched for the nvidia-cuda-nvrtc package
  };
};

/// The variable's value; nothing where it is unset or empty.
[[nodiscard]] std::optional<std::string> env(Env variable);

}  // namespace moetune
