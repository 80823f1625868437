// A matrix of any weight format back to floats, row by row, and the checks that make that safe.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "formats/spec.h"

namespace moetune {

/// The k values of row `row` (0 … n-1); `out` has k elements. Every element is one or two fp32 products, in this order:
/// fp8, mxfp8, mxfp4: element · scale;  nvfp4: element · (group scale · global_scale);  int4: (nibble - zero) · scale.
/// Needs a view whose shape check_shape accepts.
void dequantize_row(const MatrixView& matrix, std::int64_t row, std::span<float> out);

/// Whether the format can hold N × K at all: sizes from 1 to 2^24, an even K for four-bit formats, the block sizes that
/// the format leaves open positive, the ones that it fixes (16 for nvfp4, 32 for mxfp4 and mxfp8) as they are.
[[nodiscard]] Status check_shape(const WeightSpec& spec, std::int64_t n, std::int64_t k);

/// Scales are finite and not negative, the global scale is finite and positive, zero points are 0 … 16 (16: GPTQ files
/// that store the zero point less one). The error names the first offender with its row and group.
[[nodiscard]] Status check_scales(const MatrixView& matrix);

/// No element is a NaN or an infinity. The error names the first with its row and column.
[[nodiscard]] Status check_elements(const MatrixView& matrix);

/// check_shape, check_scales and check_elements: what a matrix that came from a file must pass.
[[nodiscard]] Status check_matrix(const MatrixView& matrix);

}  // namespace moetune
