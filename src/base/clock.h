// The one clock. Everything that needs time takes a number; only callers at the edge read it.
#pragma once

#include <chrono>

namespace moetune {

/// Seconds since an arbitrary start, monotonic.
[[nodiscard]] inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace moetune
