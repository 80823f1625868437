#include "formats/dequantize.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "formats/convert.h"

namespace moetune {
namespace {

/// Parts of a checkpoint need not be aligned for their type.
template <class T>
T load(const std::byte* base, std::int64_t index) {
  T value;
  std::memcpy(&value, base + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

std::uint8_t load_u8(const std::byte* base, std::int64_t index) { return std::to_integer<std::uint8_t>(base[index]); }

std::uint8_t load_nibble(const std::byte* base, std::int64_t index) {
  const std::uint8_t pair = load_u8(base, index / 2);
  return static_cast<std::uint8_t>(index % 2 == 0 ? pair & 0xfU : pair >> 4U);
}

/// Scale of columns [group · width, …) of a row.
float group_scale(const MatrixView& matrix, std::int64_t row, std::int64_t group) {
  const std::int64_t groups = ceil_div(matrix.k, matrix.spec.block_k);
  switch (matrix.spec.format) {
    case WeightFormat::fp8_tensor:
      return load<float>(matrix.scales, 0);
    case WeightFormat::fp8_channel:
      return load<float>(matrix.scales, row);
    case WeightFormat::fp8_block:
      return load<float>(matrix.scales, row / matrix.spec.block_n * groups + group);
    case WeightFormat::mxfp8:
    case WeightFormat::mxfp4:
      return e8m0_to_float(load_u8(matrix.scales, row * groups + group));
    case WeightFormat::nvfp4:
      return e4m3_to_float(load_u8(matrix.scales, row * groups + group)) * matrix.global_scale;
    case WeightFormat::int4:
      return load<float>(matrix.scales, row * groups + group);
    case WeightFormat::bf16:
    case WeightFormat::fp16:
      break;
  }
  return 1.0F;
}

/// Columns that share a scale within one row.
std::int64_t group_width(const MatrixView& matrix) { return matrix.spec.block_k > 0 ? matrix.spec.block_k : matrix.k; }

float group_zero(const MatrixView& matrix, std::int64_t row, std::int64_t group) {
  if (!matrix.spec.zero_point) return 8.0F;
  return static_cast<float>(load_u8(matrix.zeros, row * ceil_div(matrix.k, matrix.spec.block_k) + group));
}

/// Calls convert(first, last, group) for each group of columns.
template <class Convert>
void for_each_group(const MatrixView& matrix, Convert&& convert) {
  const std::int64_t width = group_width(matrix);
  for (std::int64_t first = 0, group = 0; first < matrix.k; first += width, ++group)
    convert(first, std::min(first + width, matrix.k), group);
}

void dequantize_fp8_row(const MatrixView& matrix, std::int64_t row, float* out) {
  for_each_group(matrix, [&](std::int64_t first, std::int64_t last, std::int64_t group) {
    const float scale = group_scale(matrix, row, group);
    const std::byte* codes = matrix.data + row * matrix.k;
    for (std::int64_t column = first; column < last; ++column)
      out[column] = e4m3_to_float(load_u8(codes, column)) * scale;
  });
}

void dequantize_e2m1_row(const MatrixView& matrix, std::int64_t row, float* out) {
  for_each_group(matrix, [&](std::int64_t first, std::int64_t last, std::int64_t group) {
    const float scale = group_scale(matrix, row, group);
    const std::byte* codes = matrix.data + row * (matrix.k / 2);
    for (std::int64_t column = first; column < last; column += 2) {  // groups begin and end on even columns
      const std::uint8_t pair = load_u8(codes, column / 2);
      out[column] = e2m1_to_float(pair & 0xfU) * scale;
      out[column + 1] = e2m1_to_float(pair >> 4U) * scale;
    }
  });
}

void dequantize_int4_row(const MatrixView& matrix, std::int64_t row, float* out) {
  for_each_group(matrix, [&](std::int64_t first, std::int64_t last, std::int64_t group) {
    const float scale = group_scale(matrix, row, group);
    const float zero = group_zero(matrix, row, group);
    const std::byte* codes = matrix.data + row * (matrix.k / 2);
    for (std::int64_t column = first; column < last; ++column)
      out[column] = (static_cast<float>(load_nibble(codes, column)) - zero) * scale;
  });
}

}  // namespace

void dequantize_row(const MatrixView& matrix, std::int64_t row, std::span<float> out) {
  switch (matrix.spec.format) {
    case WeightFormat::bf16:
      for (std::int64_t column = 0; column < matrix.k; ++column)
        out[static_cast<std::size_t>(column)] =
            bf16_to_float(load<std::uint16_t>(matrix.data, row * matrix.k + column));
      return;
    case WeightFormat::fp16:
      for (std::int64_t column = 0; column < matrix.k; ++column)
        out[static_cast<std::size_t>(column)] =
            fp16_to_float(load<std::uint16_t>(matrix.data, row * matrix.k + column));
      return;
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
    case WeightFormat::fp8_block:
    case WeightFormat::mxfp8:
      return dequantize_fp8_row(matrix, row, out.data());
    case WeightFormat::nvfp4:
    case WeightFormat::mxfp4:
      return dequantize_e2m1_row(matrix, row, out.data());
    case WeightFormat::int4:
      return dequantize_int4_row(matrix, row, out.data());
  }
}

}  // namespace moetune
