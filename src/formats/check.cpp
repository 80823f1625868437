// The checks of formats/dequantize.h: checkpoints are hostile input.
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "formats/convert.h"
#include "formats/dequantize.h"

namespace moetune {
namespace {

constexpr std::int64_t kLargestSide = std::int64_t{1} << 24;

Status check_fixed_block(const WeightSpec& spec, std::int64_t width) {
  if (spec.block_k == width) return {};
  return fail(fmt::format("{} has a scale per {} columns, not {}", to_string(spec.format), width, spec.block_k));
}

Status check_blocks(const WeightSpec& spec) {
  switch (spec.format) {
    case WeightFormat::bf16:
    case WeightFormat::fp16:
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
      return {};
    case WeightFormat::fp8_block:
      if (spec.block_n > 0 && spec.block_k > 0) return {};
      return fail(fmt::format("fp8_block of {} x {}: both sides must be positive", spec.block_n, spec.block_k));
    case WeightFormat::nvfp4:
      return check_fixed_block(spec, 16);
    case WeightFormat::mxfp4:
    case WeightFormat::mxfp8:
      return check_fixed_block(spec, 32);
    case WeightFormat::int4:
      if (spec.block_k > 0) return {};
      return fail(fmt::format("int4 group of {} columns: it must be positive", spec.block_k),
                  {"for one scale per row, set the group to the number of columns"});
  }
  return {};
}

/// How many scales a format stores per matrix, as [rows, groups].
struct ScaleGrid {
  std::int64_t rows = 0, groups = 0;
};

ScaleGrid scale_grid(const MatrixView& matrix) {
  const WeightSpec& spec = matrix.spec;
  switch (spec.format) {
    case WeightFormat::bf16:
    case WeightFormat::fp16:
      return {0, 0};
    case WeightFormat::fp8_tensor:
      return {1, 1};
    case WeightFormat::fp8_channel:
      return {matrix.n, 1};
    case WeightFormat::fp8_block:
      return {ceil_div(matrix.n, spec.block_n), ceil_div(matrix.k, spec.block_k)};
    case WeightFormat::mxfp8:
    case WeightFormat::nvfp4:
    case WeightFormat::mxfp4:
    case WeightFormat::int4:
      return {matrix.n, ceil_div(matrix.k, spec.block_k)};
  }
  return {0, 0};
}

float stored_scale(const MatrixView& matrix, std::int64_t index) {
  switch (matrix.spec.format) {
    case WeightFormat::mxfp8:
    case WeightFormat::mxfp4:
      return e8m0_to_float(std::to_integer<std::uint8_t>(matrix.scales[index]));
    case WeightFormat::nvfp4:
      return e4m3_to_float(std::to_integer<std::uint8_t>(matrix.scales[index]));
    default: {
      float value = 0.0F;
      std::memcpy(&value, matrix.scales + index * 4, sizeof value);
      return value;
    }
  }
}

Status check_zeros(const MatrixView& matrix, const ScaleGrid& grid) {
  constexpr int kLargestZero = 16;
  if (matrix.zeros == nullptr) return fail("the zero points are absent");
  for (std::int64_t i = 0; i < grid.rows * grid.groups; ++i)
    if (const int zero = std::to_integer<int>(matrix.zeros[i]); zero > kLargestZero)
      return fail(fmt::format("zero point {} at row {}, group {}: four-bit weights have 0 to {}", zero, i / grid.groups,
                              i % grid.groups, kLargestZero));
  return {};
}

/// Whether the exponent bits of a 16-bit float are all ones: NaN or infinity.
template <std::uint16_t exponent_mask>
bool not_finite16(const std::byte* data, std::int64_t index) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, data + index * 2, sizeof bits);
  return (bits & exponent_mask) == exponent_mask;
}

bool is_e4m3_nan(const std::byte* data, std::int64_t index) {
  return (data[index] & std::byte{0x7f}) == std::byte{0x7f};
}

Status check_each(const MatrixView& matrix, bool (*bad)(const std::byte*, std::int64_t), std::string_view what) {
  for (std::int64_t i = 0; i < matrix.n * matrix.k; ++i)
    if (bad(matrix.data, i))
      return fail(fmt::format("the weight at row {}, column {} is {}", i / matrix.k, i % matrix.k, what));
  return {};
}

}  // namespace

Status check_shape(const WeightSpec& spec, std::int64_t n, std::int64_t k) {
  if (n < 1 || k < 1 || n > kLargestSide || k > kLargestSide)
    return fail(fmt::format("a matrix of {} x {}: both sides must be 1 to {}", n, k, kLargestSide));
  MOETUNE_CHECK(check_blocks(spec));
  if (is_four_bit(spec.format) && k % 2 != 0)
    return fail(
        fmt::format("{} columns of {}: two share a byte, so their number must be even", k, to_string(spec.format)));
  return {};
}

Status check_scales(const MatrixView& matrix) {
  const ScaleGrid grid = scale_grid(matrix);
  if (grid.rows == 0) return {};
  if (matrix.scales == nullptr) return fail("the scales are absent");
  for (std::int64_t i = 0; i < grid.rows * grid.groups; ++i) {
    const float scale = stored_scale(matrix, i);
    if (std::isfinite(scale) && scale >= 0.0F) continue;
    return fail(fmt::format("the scale at row {}, group {} is {}", i / grid.groups, i % grid.groups, scale),
                {"the checkpoint is damaged, or is not " + describe(matrix.spec)});
  }
  if (matrix.spec.format == WeightFormat::nvfp4 && !(std::isfinite(matrix.global_scale) && matrix.global_scale > 0.0F))
    return fail(fmt::format("the global scale is {}; it must be positive", matrix.global_scale));
  if (matrix.spec.format == WeightFormat::int4 && matrix.spec.zero_point) return check_zeros(matrix, grid);
  return {};
}

Status check_elements(const MatrixView& matrix) {
  if (matrix.data == nullptr) return fail("the weights are absent");
  switch (matrix.spec.format) {
    case WeightFormat::bf16:
      return check_each(matrix, not_finite16<0x7f80>, "not finite");
    case WeightFormat::fp16:
      return check_each(matrix, not_finite16<0x7c00>, "not finite");
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
    case WeightFormat::fp8_block:
    case WeightFormat::mxfp8:
      return check_each(matrix, is_e4m3_nan, "NaN");
    case WeightFormat::nvfp4:
    case WeightFormat::mxfp4:
    case WeightFormat::int4:
      return {};  // every code is a number
  }
  return {};
}

Status check_matrix(const MatrixView& matrix) {
  MOETUNE_CHECK(check_shape(matrix.spec, matrix.n, matrix.k));
  MOETUNE_CHECK(check_scales(matrix));
  return check_elements(matrix);
}

}  // namespace moetune
