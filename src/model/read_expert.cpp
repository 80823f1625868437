#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "formats/convert.h"
#include "formats/dequantize.h"
#include "model/expert_source.h"
#include "model/json_events.h"

namespace moetune {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float float_at(const Grid& grid, std::int64_t row, std::int64_t column) {
  const std::byte* from = grid.at(row, column);
  switch (grid.dtype) {
    case Dtype::bf16:
      return bf16_to_float(load<std::uint16_t>(from));
    case Dtype::f16:
      return fp16_to_float(load<std::uint16_t>(from));
    case Dtype::f8_e8m0:
      return e8m0_to_float(load<std::uint8_t>(from));
    default:
      return load<float>(from);
  }
}

/// Tile by tile: read along the columns, where neighbours lie close, written along the rows.
template <class T>
void copy_turned(const Grid& grid, std::byte* to) {
  constexpr std::int64_t kTile = 64;
  constexpr auto kSide = static_cast<std::size_t>(kTile);
  std::array<T, kSide * kSide> tile;
  for (std::int64_t row0 = 0; row0 < grid.rows; row0 += kTile)
    for (std::int64_t column0 = 0; column0 < grid.columns; column0 += kTile) {
      const auto rows = static_cast<std::size_t>(std::min(kTile, grid.rows - row0));
      const auto columns = static_cast<std::size_t>(std::min(kTile, grid.columns - column0));
      for (std::size_t column = 0; column < columns; ++column) {
        const std::byte* from = grid.at(row0, column0 + static_cast<std::int64_t>(column));
        for (std::size_t row = 0; row < rows; ++row, from += grid.row_stride)
          tile[row * kSide + column] = load<T>(from);
      }
      for (std::size_t row = 0; row < rows; ++row) {
        const std::int64_t place = (row0 + static_cast<std::int64_t>(row)) * grid.columns + column0;
        std::memcpy(to + place * static_cast<std::int64_t>(sizeof(T)), &tile[row * kSide], columns * sizeof(T));
      }
    }
}

/// The elements as they are, row after row without gaps.
void copy_elements(const Grid& grid, std::byte* to) {
  const std::int64_t element = grid.element_bytes();
  if (grid.column_stride == element) {
    const std::int64_t row_bytes = grid.columns * element;
    for (std::int64_t row = 0; row < grid.rows; ++row)
      std::memcpy(to + row * row_bytes, grid.at(row, 0), static_cast<std::size_t>(row_bytes));
  } else if (element == 1) {
    copy_turned<std::uint8_t>(grid, to);
  } else if (element == 2) {
    copy_turned<std::uint16_t>(grid, to);
  } else {
    copy_turned<std::uint32_t>(grid, to);
  }
}

void copy_floats(const Grid& grid, std::byte* to) {
  for (std::int64_t row = 0; row < grid.rows; ++row)
    for (std::int64_t column = 0; column < grid.columns; ++column, to += sizeof(float)) {
      const float value = float_at(grid, row, column);
      std::memcpy(to, &value, sizeof value);
    }
}

/// bf16 or fp16 from any floats. A model must not change unsaid, so that a value which does not survive is an error.
Status convert_floats(const Grid& grid, WeightFormat format, std::byte* to) {
  const bool bf16 = format == WeightFormat::bf16;
  for (std::int64_t row = 0; row < grid.rows; ++row)
    for (std::int64_t column = 0; column < grid.columns; ++column, to += 2) {
      const float value = float_at(grid, row, column);
      const std::uint16_t code = bf16 ? float_to_bf16(value) : float_to_fp16(value);
      if (const float back = bf16 ? bf16_to_float(code) : fp16_to_float(code); back != value)
        return fail(fmt::format("{} is {}, and its value {} at row {}, column {} has no equal in {}",
                                printable(grid.tensor), to_string(grid.dtype), value, row, column, to_string(format)),
                    {"convert the checkpoint first, with the rounding that you want"});
      std::memcpy(to, &code, sizeof code);
    }
  return {};
}

void unpack_nibbles(const PackedNibbles& nibbles, const MatrixPart& part, std::byte* to) {
  for (std::int64_t row = part.row; row < part.row + part.rows; ++row)
    for (std::int64_t column = part.column; column < part.column + part.columns; column += 2)
      *to++ = static_cast<std::byte>(nibbles.at(row, column) | nibbles.at(row, column + 1) << 4);
}

Status read_zeros(const ExpertSource& source, const WeightSpec& spec, std::byte* to) {
  constexpr std::uint8_t kMiddle = 8;
  const MatrixPart& part = source.part;
  const std::int64_t first = part.column / spec.block_k, groups = ceil_div(part.columns, spec.block_k);
  for (std::int64_t row = part.row; row < part.row + part.rows; ++row)
    for (std::int64_t group = first; group < first + groups; ++group) {
      const std::uint8_t zero = source.zeros->at(row, group);
      if (spec.zero_point)
        *to++ = static_cast<std::byte>(zero);
      else if (zero != kMiddle)
        return fail(
            fmt::format("{}: the zero point of row {}, group {} is {}; config.json promises symmetric weights, "
                        "which have {}",
                        printable(source.zeros->words.tensor), row, group, zero, kMiddle));
    }
  return {};
}

Status read_scales(const ExpertSource& source, const WeightSpec& spec, std::byte* to) {
  if (!source.scales) return {};
  const bool as_stored =
      spec.format == WeightFormat::nvfp4 || spec.format == WeightFormat::mxfp4 || spec.format == WeightFormat::mxfp8;
  if (as_stored)
    copy_elements(*source.scales, to);
  else
    copy_floats(*source.scales, to);
  return {};
}

Status read_data(const ExpertSource& source, const WeightSpec& spec, std::byte* to) {
  const Dtype dtype = source.data.dtype;
  if (source.nibbles) {
    unpack_nibbles(*source.nibbles, source.part, to);
    return {};
  }
  const bool convert = (spec.format == WeightFormat::bf16 && dtype != Dtype::bf16) ||
                       (spec.format == WeightFormat::fp16 && dtype != Dtype::f16);
  if (convert) return convert_floats(source.data, spec.format, to);
  copy_elements(source.data, to);
  return {};
}

Status read_bias(const Grid& bias, std::int64_t expert, ExpertStack& stack) {
  float* to = stack.bias.data() + expert * stack.n;
  for (std::int64_t row = 0; row < bias.rows; ++row) {
    to[row] = float_at(bias, row, 0);
    if (!std::isfinite(to[row]))
      return fail(fmt::format("{}: the bias of row {} is {}", printable(bias.tensor), row, to[row]));
  }
  return {};
}

}  // namespace

std::uint8_t PackedNibbles::at(std::int64_t row, std::int64_t column) const {
  constexpr std::array<std::uint8_t, 8> kAwqPlace = {0, 4, 1, 5, 2, 6, 3, 7};
  const bool by_row = along == Along::rows;
  const auto neighbour = static_cast<std::size_t>(by_row ? row % 8 : column % 8);
  const std::byte* word = by_row ? words.at(column, row / 8) : words.at(column / 8, row);
  const std::size_t place = awq_order ? kAwqPlace[neighbour] : neighbour;
  const auto byte = std::to_integer<unsigned>(word[place / 2]);
  return static_cast<std::uint8_t>((place % 2 == 0 ? byte & 0xfU : byte >> 4) + add);
}

Status read_expert(const ExpertSource& source, ExpertStack& stack, std::int64_t expert) {
  const MatrixBytes bytes = matrix_bytes(stack.spec, stack.n, stack.k);
  MOETUNE_CHECK(read_data(source, stack.spec, stack.data.data() + expert * bytes.data));
  MOETUNE_CHECK(read_scales(source, stack.spec, stack.scales.data() + expert * bytes.scales));
  if (source.zeros) MOETUNE_CHECK(read_zeros(source, stack.spec, stack.zeros.data() + expert * bytes.zeros));
  if (source.bias) MOETUNE_CHECK(read_bias(*source.bias, expert, stack));
  if (!stack.global_scale.empty()) stack.global_scale[static_cast<std::size_t>(expert)] = source.global_scale;
  const std::string& name = source.nibbles ? source.nibbles->words.tensor : source.data.tensor;
  if (auto status = check_matrix(stack.at(expert)); !status) return fail_in(printable(name), status.error());
  return {};
}

}  // namespace moetune
