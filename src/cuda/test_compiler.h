// What the tests of this room share: the compiler of this machine, and kernels whose needs are known.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cuda/compiler.h"

namespace moetune::cuda {

/// NVRTC, or null with a failure that says how to get it: without it nothing of this room is tested.
inline std::shared_ptr<const Compiler> test_compiler() {
  static const auto compiler = Compiler::open();
  if (compiler) return *compiler;
  ADD_FAILURE() << compiler.error().have << "\nrun scripts/install_nvrtc, configure again, and repeat the test";
  return nullptr;
}

/// Three kernels: `reverse` (4096 bytes of static shared memory, 256 threads), `crowded` (must spill registers where a
/// thread gets 32 or 64), `space::dynamic<Tile<2>>` (a template with dynamic shared memory, a stack array in a call, 20
/// bytes of parameters).
inline constexpr const char* kThreeKernels = R"(
__device__ __noinline__ float gather(const float* p, int n) {
  float y[8];
  for (int i = 0; i < 8; ++i) y[i] = p[i];
  return y[n & 7];
}
extern "C" __global__ void __launch_bounds__(256) reverse(float* p, int n) {
  __shared__ float s[1024];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = s[(threadIdx.x * 7 + n) & 1023];
}
extern "C" __global__ void __launch_bounds__(1024, 2) crowded(float* p) {
  float a[80];
  for (int i = 0; i < 80; ++i) a[i] = p[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 80; ++i) p[i * 1024 + threadIdx.x] = a[i] * a[79 - i];
}
#include "tile.cuh"
namespace space {
template <class T>
__global__ void dynamic(float* p, T tile, int n) {
  extern __shared__ float s[];
  s[threadIdx.x] = p[threadIdx.x] + tile.values[n & 1];
  __syncthreads();
  p[threadIdx.x] = s[threadIdx.x ^ 1] + gather(p, n);
}
}
)";
inline constexpr const char* kTileHeader = "template <int kCount>\nstruct Tile { float values[kCount]; };\n";

inline KernelSource three_kernels(const std::string& target) {
  KernelSource source;
  source.name = "three.cu";
  source.text = kThreeKernels;
  source.headers["tile.cuh"] = kTileHeader;
  source.target = target;
  source.expressions = {"space::dynamic<Tile<2>>"};
  return source;
}

/// extern "C" `scale(float* p, float by, int n)`: p[i] *= by.
inline KernelSource scale_kernel(const std::string& target, const std::string& comment = "") {
  KernelSource source;
  source.name = "scale.cu";
  source.text = "// " + comment + R"(
extern "C" __global__ void scale(float* p, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= by;
}
)";
  source.target = target;
  return source;
}

}  // namespace moetune::cuda
