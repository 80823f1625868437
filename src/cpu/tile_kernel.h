// The one computation that both CPU backends are made of: some rows of one expert's projection times the inputs of that
// expert's pairs. Kernels are chosen once, when a session is configured, for the best instruction set of the machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/spec.h"

namespace moetune {

/// out[p][r] = Σ_k W[first_row + r][k] · input[p][k] for r < rows, p < pairs, accumulated in fp32.
struct TileArgs {
  MatrixView weights;
  std::int64_t first_row = 0, rows = 0;
  const std::byte* const* inputs = nullptr;  ///< one arranged row (TileKernel::arrange) per pair
  std::int64_t pairs = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;           ///< floats from one pair's results to the next pair's
  std::int64_t prefetch_bytes = 0;       ///< how far ahead of the reading weights are asked for; 0: not at all
  const std::byte* next_tile = nullptr;  ///< weights that this thread will read next: the prefetch goes on there
  std::int64_t next_tile_bytes = 0;      ///< of which only so many are asked for
  std::byte* scratch = nullptr;          ///< scratch_bytes of the kernel, 64-byte aligned, of this thread alone
};

/// A tile computation for one weight format, K and shape of the inner loop.
struct TileKernel {
  std::int64_t input_bytes = 0;    ///< of an arranged input row; a multiple of 64
  std::int64_t scratch_bytes = 0;  ///< a multiple of 64
  std::int64_t k_chunk = 0;        ///< prefill: columns of a panel
  /// Brings K floats into the order (and number format) that the kernel reads; `out` is 64-byte aligned.
  void (*arrange)(const float* input, std::int64_t k, std::byte* out) = nullptr;
  void (*run)(const TileKernel& kernel, const TileArgs& args) = nullptr;
};

/// Inner loop of the decode form: weights are decoded in registers, `rows` of them side by side, for `pairs` inputs at
/// a time. Powers of two, rows up to 4, pairs up to 8, the product up to 8.
struct DecodeShape {
  std::int64_t rows = 1, pairs = 1;
};
[[nodiscard]] TileKernel decode_kernel(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape);

/// Families of decode_kernel, one source file each. Those for formats fixed by name need a spec that fits them.
[[nodiscard]] TileKernel half_decode_kernel(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape);
[[nodiscard]] TileKernel fp8_decode_kernel(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape);
[[nodiscard]] TileKernel nibble_decode_kernel(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape);

/// The prefill form: panels of up to `rows` rows (the tile's) by k_chunk columns are dequantised once, then used for
/// `inputs` (2, 3 or 4) inputs at a time.
struct PrefillShape {
  std::int64_t rows = 1, k_chunk = 256, inputs = 3;
  bool bf16_dot = false;  ///< panels and inputs in bf16 and instructions that multiply those, where there are some
};
[[nodiscard]] TileKernel prefill_kernel(const WeightSpec& spec, std::int64_t k, const PrefillShape& shape);

/// prefill_kernel with bf16_dot; no run function where the processor or the format does not allow it.
[[nodiscard]] TileKernel bf16_dot_prefill_kernel(const WeightSpec& spec, std::int64_t k, const PrefillShape& shape);

}  // namespace moetune
