// Instructions that Highway's targets do not tell apart.
#pragma once

namespace moetune {

/// AVX512_BF16: dot products of bf16 pairs (Cooper Lake, Sapphire Rapids, Zen 4 and later).
[[nodiscard]] inline bool has_bf16_dot() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

}  // namespace moetune
