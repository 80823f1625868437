// Floats into any weight format, by the rule that the format's own tools use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "formats/spec.h"

namespace moetune {

/// A matrix that owns its parts, in the canonical layout of MatrixView.
struct QuantizedMatrix {
  WeightSpec spec;
  std::int64_t n = 0, k = 0;
  std::vector<std::byte> data, scales, zeros;
  float global_scale = 1.0F;

  /// Valid as long as this matrix lives and is not changed.
  [[nodiscard]] MatrixView view() const;
};

/// Quantises `values` [n, k], row-major. amax is the largest magnitude among the elements that share a scale:
///
///   bf16, fp16   nearest
///   fp8_*        scale = amax / 448
///   mxfp8        scale = 2^(⌊log2 amax⌋ - 8), OCP MX 1.0 §6.3; what is beyond 448 saturates
///   mxfp4        scale = 2^(⌊log2 amax⌋ - 2), likewise
///   nvfp4        global_scale = amax of the matrix / (6 · 448); group scale = e4m3(amax / 6 / global_scale)
///   int4         scale = 2 amax / 15, nibble = clamp(round(v / scale) + 8, 0, 15), as GPTQ's symmetric form
///   int4 + zero  over [min(0, least), max(0, greatest)]: scale = range / 15, zero = round(-low / scale)
///
/// A group of zeros gets scale 1 (fp8, int4), 2^-127 (mx) or 0 (nvfp4). Errors: a shape that check_shape refuses, a
/// number of values that is not n·k, a value that is not finite or that overflows the format.
[[nodiscard]] Result<QuantizedMatrix> quantize(const WeightSpec& spec, std::span<const float> values, std::int64_t n,
                                               std::int64_t k);

/// Bound on |dequantised - value| after quantize(), for an element of magnitude |value| in a group of largest magnitude
/// `group_amax`, in a matrix of largest magnitude `matrix_amax` (only nvfp4 looks at it). Derivation in quantize.cpp.
[[nodiscard]] double error_bound(const WeightSpec& spec, double magnitude, double group_amax, double matrix_amax);

}  // namespace moetune
