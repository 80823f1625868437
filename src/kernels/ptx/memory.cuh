// Loads that say how they should be cached, and asynchronous copies (PTX ISA, "ld.global.nc", "cp.async").
#pragma once

#include "common/types.cuh"

namespace moetune::ptx {

/// 16 bytes that are read once: past L1, first to go from L2.
__device__ __forceinline__ Quad load_stream(const void* address) {
  Quad q;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
               : "l"(address));
  return q;
}

/// 16 bytes that other warps read too.
__device__ __forceinline__ Quad load_shared_line(const void* address) {
  Quad q;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w) : "l"(address));
  return q;
}

__device__ __forceinline__ u16 load_stream_u16(const void* address) {
  u16 v;
  asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(address));
  return v;
}

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

/// Copies 16 bytes to shared memory in the background; `valid` false writes zeros and reads nothing.
__device__ __forceinline__ void copy_async_16(u32 shared, const void* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `kPending` of the latest groups are still under way.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace moetune::ptx
