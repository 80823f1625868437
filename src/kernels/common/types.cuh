// Fixed-width names for device code. Kernels are compiled without any header of the system.
#pragma once

namespace moetune {

using i32 = int;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;
using u8 = unsigned char;

/// Four registers: the unit in which kernels read memory.
struct alignas(16) Quad {
  u32 x, y, z, w;
};

template <class T>
__device__ __forceinline__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace moetune
