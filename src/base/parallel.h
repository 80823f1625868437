// A loop spread over the machine's cores: for weights and the reference. Backends have threads of their own.
#pragma once

#include <cstdint>
#include <functional>

namespace moetune {

/// Calls body(0) … body(count - 1), each once, in any order, from `threads` threads (0: one a core), and returns when
/// all are done. Where the machine gives fewer threads than that, those it gives do the work. The body must not throw.
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body, unsigned threads = 0);

}  // namespace moetune
