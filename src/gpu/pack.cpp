#include "gpu/pack.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>

#include "formats/convert.h"

namespace moetune {
namespace {

constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kChunk = 64;
constexpr int kLanes = 32;
constexpr int kLaneColumns = 16;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// How one format is packed. `units`: 16-byte units of a lane and chunk; `scale_columns` scales of `scale_bytes` for
/// each pair of rows and chunk.
struct Form {
  std::string_view name;
  int units = 0, scale_columns = 0, scale_bytes = 0;
};

Form form_of(const WeightSpec& spec) {
  switch (spec.format) {
    case WeightFormat::bf16:
    case WeightFormat::fp16:
      return {"bf16", 4, 0, 0};
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
      return {"fp8", 2, 0, 0};
    case WeightFormat::fp8_block:
      return {"fp8_block", 2, 0, 0};
    case WeightFormat::mxfp8:
      return {"mxfp8", 2, 2, 2};
    case WeightFormat::nvfp4:
      return {"nvfp4", 1, 4, 2};
    case WeightFormat::mxfp4:
      return {"mxfp4", 1, 2, 2};
    case WeightFormat::int4:
      break;
  }
  if (spec.block_k % kChunk == 0) return spec.zero_point ? Form{"int4_zero", 1, 1, 8} : Form{"int4", 1, 1, 4};
  return spec.zero_point ? Form{"int4_group32_zero", 1, 2, 8} : Form{"int4_group32", 1, 2, 4};
}

/// What the kernels leave to the accumulator: see kTwoTo117 in kernels/common/fragment.cuh.
float accumulator_factor(WeightFormat format) {
  if (format == WeightFormat::nvfp4) return 0x1p9F;
  if (format == WeightFormat::mxfp4) return 0x1p64F;
  return 1.0F;
}

/// Largest e8m0 code whose scale the kernels can hold in bf16: 2^7 for MXFP8, 2^65 for MXFP4.
int largest_e8m0(WeightFormat format) { return format == WeightFormat::mxfp8 ? 134 : 192; }

/// One matrix being packed, with bounds: rows and columns beyond it are zero.
class Source {
 public:
  explicit Source(const MatrixView& matrix) : matrix_(matrix) {}

  [[nodiscard]] std::uint32_t element(std::int64_t row, std::int64_t column) const {
    if (row >= matrix_.n || column >= matrix_.k) return 0;
    const std::int64_t at = row * matrix_.k + column;
    switch (matrix_.spec.format) {
      case WeightFormat::bf16:
      case WeightFormat::fp16: {
        std::uint16_t value = 0;
        std::memcpy(&value, matrix_.data + 2 * at, 2);
        return value;
      }
      case WeightFormat::nvfp4:
      case WeightFormat::mxfp4:
      case WeightFormat::int4:
        return std::to_integer<std::uint32_t>(matrix_.data[at / 2]) >> (column % 2 * 4) & 0xFU;
      default:
        return std::to_integer<std::uint32_t>(matrix_.data[at]);
    }
  }
  /// The byte of scale or zero point of the group that holds the element; 0 outside.
  [[nodiscard]] std::uint8_t group_byte(const std::byte* bytes, std::int64_t row, std::int64_t column) const {
    if (bytes == nullptr || row >= matrix_.n || column >= matrix_.k) return 0;
    return std::to_integer<std::uint8_t>(bytes[row * groups() + column / matrix_.spec.block_k]);
  }
  [[nodiscard]] float group_float(std::int64_t row, std::int64_t column) const {
    if (row >= matrix_.n || column >= matrix_.k) return 0;
    return float_at(row * groups() + column / matrix_.spec.block_k);
  }
  [[nodiscard]] float float_at(std::int64_t index) const {
    float value = 0;
    std::memcpy(&value, matrix_.scales + 4 * index, 4);
    return value;
  }
  [[nodiscard]] std::int64_t groups() const { return ceil_div(matrix_.k, matrix_.spec.block_k); }
  [[nodiscard]] const MatrixView& matrix() const { return matrix_; }

 private:
  MatrixView matrix_;
};

// ------------------------------------------------------------------------------------------------------- elements of a
// lane

/// bits of element p of pair `pair` in a 32-bit word of e2m1: see kernels/common/fragment.cuh.
std::uint32_t place_e2m1(std::uint32_t code, int pair) {
  const std::uint32_t sign = code >> 3, magnitude = code & 7U;
  if (pair < 3) return (sign << 15 | magnitude << 6) >> (3 * pair);
  return sign << 14 | (magnitude >> 2) << 13 | (magnitude & 3U) << 10;
}

/// The word of a row's two steps that start at `column`: four pairs of columns.
std::uint32_t four_bit_word(const Source& source, std::int64_t row, std::int64_t column, bool e2m1) {
  std::uint32_t word = 0;
  for (int pair = 0; pair < 4; ++pair)
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t code = source.element(row, column + 2 * pair + half);
      word |= (e2m1 ? place_e2m1(code, pair) : code << (4 * pair)) << (16 * half);
    }
  return word;
}

std::uint32_t eight_bit_word(const Source& source, std::int64_t row, std::int64_t column) {
  return source.element(row, column + 2) | source.element(row, column) << 8 | source.element(row, column + 3) << 16 |
         source.element(row, column + 1) << 24;
}

std::uint32_t sixteen_bit_word(const Source& source, std::int64_t row, std::int64_t column) {
  return source.element(row, column) | source.element(row, column + 1) << 16;
}

/// The four words of unit `unit` of the lane that holds rows `row`, `row + 1` from `column` on.
std::array<std::uint32_t, 4> unit_words(const Source& source, int units, int unit, std::int64_t row,
                                        std::int64_t column) {
  const bool e2m1 = source.matrix().spec.format != WeightFormat::int4;
  switch (units) {
    case 4: {
      const std::int64_t c = column + 4 * unit;
      return {sixteen_bit_word(source, row, c), sixteen_bit_word(source, row + 1, c),
              sixteen_bit_word(source, row, c + 2), sixteen_bit_word(source, row + 1, c + 2)};
    }
    case 2: {
      const std::int64_t c = column + 8 * unit;
      return {eight_bit_word(source, row, c), eight_bit_word(source, row + 1, c), eight_bit_word(source, row, c + 4),
              eight_bit_word(source, row + 1, c + 4)};
    }
    default:
      return {four_bit_word(source, row, column, e2m1), four_bit_word(source, row + 1, column, e2m1),
              four_bit_word(source, row, column + 8, e2m1), four_bit_word(source, row + 1, column + 8, e2m1)};
  }
}

void pack_elements(const Source& source, int units, std::int64_t first_row, std::int64_t chunks, std::byte* out) {
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int unit = 0; unit < units; ++unit)
      for (int lane = 0; lane < kLanes; ++lane, out += 16) {
        const auto words =
            unit_words(source, units, unit, first_row + lane / 4 * 2, chunk * kChunk + lane % 4 * kLaneColumns);
        std::memcpy(out, words.data(), 16);
      }
}

// -------------------------------------------------------------------------------------------------------------------
// scales

void pack_int4_scale(const Source& source, std::int64_t row, std::int64_t column, int bytes, std::byte* out) {
  std::array<std::uint16_t, 4> values{};
  for (int i = 0; i < 2; ++i) {
    values[static_cast<std::size_t>(i)] = float_to_bf16(source.group_float(row + i, column));
    const float zero =
        source.matrix().zeros != nullptr ? source.group_byte(source.matrix().zeros, row + i, column) : 8.0F;
    values[static_cast<std::size_t>(i + 2)] = float_to_bf16(-(128.0F + zero));
  }
  std::memcpy(out, values.data(), static_cast<std::size_t>(bytes));
}

Status pack_scales(const Source& source, const Form& form, std::int64_t first_row, std::int64_t chunks,
                   std::byte* out) {
  const WeightFormat format = source.matrix().spec.format;
  const bool e8m0 = format == WeightFormat::mxfp4 || format == WeightFormat::mxfp8;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int part = 0; part < form.scale_columns; ++part)
      for (int pair = 0; pair < 8; ++pair, out += form.scale_bytes) {
        const std::int64_t row = first_row + 2 * pair;
        const std::int64_t column = chunk * kChunk + part * (kChunk / form.scale_columns);
        if (format == WeightFormat::int4) {
          pack_int4_scale(source, row, column, form.scale_bytes, out);
          continue;
        }
        for (int i = 0; i < 2; ++i) {
          const std::uint8_t code = source.group_byte(source.matrix().scales, row + i, column);
          if (e8m0 && code > largest_e8m0(format))
            return fail(fmt::format("row {}, column {}: scale 2^{} is beyond 2^{}, what the kernels can hold", row + i,
                                    column, code - 127, largest_e8m0(format) - 127));
          out[i] = std::byte{code};
        }
      }
  return {};
}

/// fp8_block: one float a tile and chunk.
void pack_block_scales(const Source& source, std::int64_t first_row, std::int64_t chunks, std::byte* out) {
  const WeightSpec& spec = source.matrix().spec;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const float scale = source.float_at(first_row / spec.block_n * source.groups() + chunk * kChunk / spec.block_k);
    std::memcpy(out + 4 * chunk, &scale, 4);
  }
}

/// Factors of a tile's 16 rows that multiply the accumulator.
void fill_row_scale(const Source& source, std::int64_t first_row, std::span<float> out) {
  const MatrixView& m = source.matrix();
  for (std::int64_t i = 0; i < kTileRows; ++i) {
    float scale = accumulator_factor(m.spec.format) * m.global_scale;
    if (m.spec.format == WeightFormat::fp8_tensor) scale = source.float_at(0);
    if (m.spec.format == WeightFormat::fp8_channel) scale = first_row + i < m.n ? source.float_at(first_row + i) : 0.0F;
    out[static_cast<std::size_t>(i)] = scale;
  }
}

// --------------------------------------------------------------------------------------------------------------------
// stacks

/// Packs `stacks` with their row tiles alternating.
Result<PackedStack> pack(std::span<const ExpertStack* const> stacks) {
  const ExpertStack& first = *stacks.front();
  const Form form = form_of(first.spec);
  const auto ways = static_cast<std::int64_t>(stacks.size());
  PackedStack packed;
  packed.format = form.name;
  packed.experts = first.experts;
  packed.row_tiles = ceil_div(first.n, kTileRows) * ways;
  packed.chunks = ceil_div(first.k, kChunk);
  packed.columns = first.k;
  const std::int64_t tile_bytes = packed.chunks * form.units * kLanes * 16;
  const std::int64_t scale_bytes = first.spec.format == WeightFormat::fp8_block
                                       ? packed.chunks * 4
                                       : packed.chunks * form.scale_columns * 8 * form.scale_bytes;
  const std::int64_t tiles = packed.experts * packed.row_tiles;
  MOETUNE_TRY(packed.data, Buffer::allocate(tiles * tile_bytes));
  MOETUNE_TRY(packed.scales, Buffer::allocate(tiles * scale_bytes));
  const bool row_scale = first.spec.format == WeightFormat::fp8_tensor ||
                         first.spec.format == WeightFormat::fp8_channel || first.spec.format == WeightFormat::nvfp4 ||
                         first.spec.format == WeightFormat::mxfp4;
  if (row_scale) packed.row_scale.assign(static_cast<std::size_t>(tiles * kTileRows), 0.0F);
  if (!first.bias.empty()) packed.bias.assign(static_cast<std::size_t>(tiles * kTileRows), 0.0F);

  const auto pack_tile = [&](std::int64_t tile) -> Status {
    const std::int64_t expert = tile / packed.row_tiles, within = tile % packed.row_tiles;
    const ExpertStack& stack = *stacks[static_cast<std::size_t>(within % ways)];
    const std::int64_t first_row = within / ways * kTileRows;
    const Source source(stack.at(expert));
    pack_elements(source, form.units, first_row, packed.chunks, packed.data.data() + tile * tile_bytes);
    const auto rows = static_cast<std::size_t>(tile * kTileRows);
    if (row_scale) fill_row_scale(source, first_row, std::span(packed.row_scale).subspan(rows, kTileRows));
    const auto bias = stack.bias_of(expert);
    for (std::int64_t i = 0; i < kTileRows && !bias.empty() && first_row + i < stack.n; ++i)
      packed.bias[rows + static_cast<std::size_t>(i)] = bias[static_cast<std::size_t>(first_row + i)];
    if (stack.spec.format == WeightFormat::fp8_block)
      pack_block_scales(source, first_row, packed.chunks, packed.scales.data() + tile * scale_bytes);
    else if (form.scale_columns > 0)
      if (auto status = pack_scales(source, form, first_row, packed.chunks, packed.scales.data() + tile * scale_bytes);
          !status)
        return fail_in(fmt::format("expert {}", expert), status.error());
    return {};
  };
  const unsigned workers = std::max(1U, std::thread::hardware_concurrency());
  std::vector<Status> failures(workers);
  std::vector<std::jthread> threads;
  for (unsigned w = 0; w < workers; ++w)
    threads.emplace_back([&, w] {
      for (std::int64_t tile = w; tile < tiles && failures[w]; tile += workers) failures[w] = pack_tile(tile);
    });
  threads.clear();
  for (auto& failure : failures)
    if (!failure) return tl::unexpected(std::move(failure).error());
  return packed;
}

}  // namespace

std::string_view packed_format(const WeightSpec& spec) { return form_of(spec).name; }
std::int64_t packed_units(const WeightSpec& spec) { return form_of(spec).units; }

Reasons why_not_packed(const WeightSpec& spec) {
  Reasons reasons;
  const auto refuse = [&](std::string have, std::string need) {
    reasons.push_back({ReasonCode::weight_format, std::move(have), std::move(need), "", "src/gpu/pack.cpp"});
  };
  if (spec.format == WeightFormat::fp16)
    refuse("fp16", "bf16: fp16 weights have more digits than the kernels' bf16 operands");
  if (spec.format == WeightFormat::fp8_block && (spec.block_n % kTileRows != 0 || spec.block_k % kChunk != 0))
    refuse(describe(spec), "blocks of a multiple of 16 rows and 64 columns");
  if (spec.format == WeightFormat::int4 && spec.block_k % kChunk != 0 && spec.block_k != 32)
    refuse(describe(spec), "groups of 32 or a multiple of 64 columns");
  return reasons;
}

Result<PackedStack> pack_up(const Layer& layer) {
  if (layer.gate.experts == 0) return pack(std::array{&layer.up});
  return pack(std::array{&layer.gate, &layer.up});
}

Result<PackedStack> pack_down(const Layer& layer) { return pack(std::array{&layer.down}); }

}  // namespace moetune
