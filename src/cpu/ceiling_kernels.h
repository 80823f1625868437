// Loops that do one thing as fast as the processor can: what the ceilings are measured with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moetune {

/// For one thread, for the best instruction set of this machine. Each read or copy covers whole cache lines: `bytes` is
/// rounded down to a multiple of 4096.
struct CeilingKernels {
  /// Reads all bytes as `streams` (1, 2 or 4) contiguous parts side by side, prefetching `ahead` bytes (0: not at all).
  /// Returns a number that depends on them all.
  std::uint64_t (*read)(const std::byte* data, std::int64_t bytes, std::int64_t streams, std::int64_t ahead) = nullptr;
  /// Copies, with stores that go around the caches or through them.
  void (*copy)(const std::byte* from, std::byte* to, std::int64_t bytes, bool around_caches) = nullptr;
  /// That many rounds of independent fp32 multiply-adds; returns the operations done (2 per multiply-add).
  double (*multiply_add)(std::int64_t rounds) = nullptr;
  /// The same with dot products of bf16 pairs into fp32; null where the processor has no such instruction.
  double (*dot_bf16)(std::int64_t rounds) = nullptr;
};
[[nodiscard]] CeilingKernels ceiling_kernels();

}  // namespace moetune
