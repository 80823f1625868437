// Order between kernels of a stream (PTX ISA, "griddepcontrol"), for launches that may begin before the kernel ahead
// has ended. 9.0 and later; elsewhere kernels follow each other anyway.
#pragma once

namespace moetune::ptx {

/// The next kernel may be put on the device as soon as blocks have room.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Returns when the kernel ahead has ended and what it wrote is seen. Comes before everything that reads or writes
/// what another kernel touches.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace moetune::ptx
