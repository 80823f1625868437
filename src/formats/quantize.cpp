#include "formats/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/convert.h"
#include "formats/dequantize.h"

namespace moetune {
namespace {

/// A rectangle of elements that share a scale, rows [row, row_end) × columns [column, column_end).
struct Block {
  std::int64_t row = 0, row_end = 0, column = 0, column_end = 0;
};

template <class T>
void store(std::vector<std::byte>& bytes, std::int64_t index, T value) {
  std::memcpy(bytes.data() + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

/// Quantises one matrix; a method per family of formats.
class Quantizer {
 public:
  Quantizer(std::span<const float> values, QuantizedMatrix& out) : values_(values), out_(out) {}

  void run() {
    if (out_.spec.format == WeightFormat::nvfp4) set_global_scale();
    const Block size = block_size();
    std::int64_t index = 0;
    for (std::int64_t row = 0; row < out_.n; row += size.row_end)
      for (std::int64_t column = 0; column < out_.k; column += size.column_end, ++index)
        quantize_block({row, std::min(row + size.row_end, out_.n), column, std::min(column + size.column_end, out_.k)},
                       index);
  }

 private:
  /// The first block, not clipped to the matrix.
  [[nodiscard]] Block block_size() const {
    const WeightSpec& spec = out_.spec;
    switch (spec.format) {
      case WeightFormat::bf16:
      case WeightFormat::fp16:
      case WeightFormat::fp8_tensor:
        return {0, out_.n, 0, out_.k};
      case WeightFormat::fp8_channel:
        return {0, 1, 0, out_.k};
      case WeightFormat::fp8_block:
        return {0, spec.block_n, 0, spec.block_k};
      case WeightFormat::mxfp8:
      case WeightFormat::nvfp4:
      case WeightFormat::mxfp4:
      case WeightFormat::int4:
        return {0, 1, 0, spec.block_k};
    }
    return {};
  }

  void quantize_block(const Block& block, std::int64_t index) {
    switch (out_.spec.format) {
      case WeightFormat::bf16:
        return each(block, [this](std::int64_t at, float value) { store(out_.data, at, float_to_bf16(value)); });
      case WeightFormat::fp16:
        return each(block, [this](std::int64_t at, float value) { store(out_.data, at, float_to_fp16(value)); });
      case WeightFormat::fp8_tensor:
      case WeightFormat::fp8_channel:
      case WeightFormat::fp8_block:
        return fp8(block, index);
      case WeightFormat::mxfp8:
        return mx(block, index, kE4m3MaxExponent);
      case WeightFormat::mxfp4:
        return mx(block, index, kE2m1MaxExponent);
      case WeightFormat::nvfp4:
        return nvfp4(block, index);
      case WeightFormat::int4:
        return out_.spec.zero_point ? int4_with_zero(block, index) : int4_symmetric(block, index);
    }
  }

  template <class Visit>
  void each(const Block& block, Visit&& visit) const {
    for (std::int64_t row = block.row; row < block.row_end; ++row)
      for (std::int64_t column = block.column; column < block.column_end; ++column)
        visit(row * out_.k + column, values_[static_cast<std::size_t>(row * out_.k + column)]);
  }

  [[nodiscard]] float amax(const Block& block) const {
    float largest = 0.0F;
    each(block, [&largest](std::int64_t, float value) { largest = std::max(largest, std::abs(value)); });
    return largest;
  }

  /// Positive and normal, so that dividing by it is safe; 1 for a group of zeros.
  static float safe_scale(float scale) {
    return scale == 0.0F ? 1.0F : std::max(scale, std::numeric_limits<float>::min());
  }

  void fp8(const Block& block, std::int64_t index) {
    const float scale = safe_scale(amax(block) / kE4m3Max);
    store(out_.scales, index, scale);
    each(block, [&](std::int64_t at, float value) { store(out_.data, at, float_to_e4m3(value / scale)); });
  }

  void mx(const Block& block, std::int64_t index, int element_exponent) {
    const int exponent = static_cast<int>(float_to_e8m0_floor(amax(block))) - element_exponent;
    const auto code = static_cast<std::uint8_t>(std::max(exponent, 0));
    const float scale = e8m0_to_float(code);
    store(out_.scales, index, code);
    const bool fp8 = out_.spec.format == WeightFormat::mxfp8;
    each(block, [&](std::int64_t at, float value) {
      if (fp8)
        store(out_.data, at, float_to_e4m3(value / scale));
      else
        store_nibble(at, float_to_e2m1(value / scale));
    });
  }

  void set_global_scale() { out_.global_scale = safe_scale(amax({0, out_.n, 0, out_.k}) / (kE2m1Max * kE4m3Max)); }

  void nvfp4(const Block& block, std::int64_t index) {
    const std::uint8_t code = float_to_e4m3(amax(block) / kE2m1Max / out_.global_scale);
    const float scale = e4m3_to_float(code) * out_.global_scale;
    store(out_.scales, index, code);
    if (scale == 0.0F) return;  // the whole group is too small to be told from zero; its codes are zero already
    each(block, [&](std::int64_t at, float value) { store_nibble(at, float_to_e2m1(value / scale)); });
  }

  void int4_symmetric(const Block& block, std::int64_t index) { int4(block, index, amax(block) / 7.5F, 8.0F); }

  void int4_with_zero(const Block& block, std::int64_t index) {
    float low = 0.0F, high = 0.0F;
    each(block, [&](std::int64_t, float value) {
      low = std::min(low, value);
      high = std::max(high, value);
    });
    const float scale = safe_scale(high / 15.0F - low / 15.0F);
    const float zero = std::clamp(std::nearbyint(-low / scale), 0.0F, 15.0F);
    store(out_.zeros, index, static_cast<std::uint8_t>(zero));
    int4(block, index, scale, zero);
  }

  void int4(const Block& block, std::int64_t index, float raw_scale, float zero) {
    const float scale = safe_scale(raw_scale);
    store(out_.scales, index, scale);
    each(block, [&](std::int64_t at, float value) {
      store_nibble(at, static_cast<std::uint8_t>(std::clamp(std::nearbyint(value / scale) + zero, 0.0F, 15.0F)));
    });
  }

  /// K is even, so an element's place in its row and in the matrix agree on the half of the byte.
  void store_nibble(std::int64_t at, std::uint8_t code) {
    std::byte& pair = out_.data[static_cast<std::size_t>(at / 2)];
    pair |= static_cast<std::byte>(at % 2 == 0 ? code : code << 4);
  }

  std::span<const float> values_;
  QuantizedMatrix& out_;
};

Status check_values(const WeightSpec& spec, std::span<const float> values, std::int64_t k) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    const bool fits = std::isfinite(value) &&
                      (spec.format != WeightFormat::bf16 || std::isfinite(bf16_to_float(float_to_bf16(value)))) &&
                      (spec.format != WeightFormat::fp16 || std::isfinite(fp16_to_float(float_to_fp16(value))));
    if (!fits)
      return fail(fmt::format("{} at row {}, column {} has no {} value", value, static_cast<std::int64_t>(i) / k,
                              static_cast<std::int64_t>(i) % k, to_string(spec.format)));
  }
  return {};
}

}  // namespace

MatrixView QuantizedMatrix::view() const {
  return {
      spec,        n, k, data.data(), scales.empty() ? nullptr : scales.data(), zeros.empty() ? nullptr : zeros.data(),
      global_scale};
}

Result<QuantizedMatrix> quantize(const WeightSpec& spec, std::span<const float> values, std::int64_t n,
                                 std::int64_t k) {
  MOETUNE_CHECK(check_shape(spec, n, k));
  if (static_cast<std::int64_t>(values.size()) != n * k)
    return fail(fmt::format("{} values for a matrix of {} x {}", values.size(), n, k));
  MOETUNE_CHECK(check_values(spec, values, k));
  const MatrixBytes bytes = matrix_bytes(spec, n, k);
  QuantizedMatrix matrix{spec, n, k, {}, {}, {}, 1.0F};
  matrix.data.resize(static_cast<std::size_t>(bytes.data));
  matrix.scales.resize(static_cast<std::size_t>(bytes.scales));
  matrix.zeros.resize(static_cast<std::size_t>(bytes.zeros));
  Quantizer(values, matrix).run();
  return matrix;
}

// Let s be the scale and x = v / s what is rounded to the element format.
//
//   A float element with m mantissa bits and largest value L rounds x within half a step. In the normal range a step is
//   at most 2^-m |x|, below it a constant step d, and beyond L the value saturates:
//       |error| ≤ max(2^-(m+1) |v|, d/2 · s, |v| - L s).
//   e4m3: m = 3, d = 2^-9, L = 448.  e2m1: m = 1, d = 1/2, L = 6.
//   With s = amax / 448 the last term is 0; with the MX rule amax / s lies in [2^e, 2^(e+1)), so it is not.
//   nvfp4's scale is itself an e4m3: t = amax / 6 becomes s in t ± max(2^-4 t, 2^-10 g), g the global scale; the bound
//   takes the worse end for each term.
//
//   int4: |error| ≤ s / 2, also where clamping bites, because symmetric x ends at 7.5 and the zero point is rounded by
//   at most a half. s ≤ 2 amax / 15.
//
// fp32 arithmetic in between adds a few units of 2^-24 of the value, covered by kSlop. Subnormal floats add less than
// kTiny.
double error_bound(const WeightSpec& spec, double magnitude, double group_amax, double matrix_amax) {
  constexpr double kSlop = 0x1p-20;
  constexpr double kTiny = 0x1p-126;
  const auto element = [&](double half_ulp, double half_step, double largest, double scale_low, double scale_high) {
    return std::max({half_ulp * magnitude, half_step * scale_high, magnitude - largest * scale_low}) +
           kSlop * magnitude + kTiny;
  };
  const auto mx_scale = [group_amax](int exponent) {
    return group_amax > 0.0 ? std::max(std::exp2(std::floor(std::log2(group_amax)) - exponent), 0x1p-127) : 0x1p-127;
  };
  switch (spec.format) {
    case WeightFormat::bf16:
      return 0x1p-8 * magnitude + 0x1p-134;
    case WeightFormat::fp16:
      return std::max(0x1p-11 * magnitude, 0x1p-25);
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
    case WeightFormat::fp8_block: {
      const double scale = group_amax / static_cast<double>(kE4m3Max);
      return element(0x1p-4, 0x1p-10, kE4m3Max, scale, scale);
    }
    case WeightFormat::mxfp8: {
      const double scale = mx_scale(kE4m3MaxExponent);
      return element(0x1p-4, 0x1p-10, kE4m3Max, scale, scale);
    }
    case WeightFormat::mxfp4: {
      const double scale = mx_scale(kE2m1MaxExponent);
      return element(0x1p-2, 0.25, kE2m1Max, scale, scale);
    }
    case WeightFormat::nvfp4: {
      const double ideal = group_amax / static_cast<double>(kE2m1Max);
      const double global = matrix_amax / static_cast<double>(kE2m1Max * kE4m3Max);
      const double off = std::max(0x1p-4 * ideal, 0x1p-10 * global) * (1.0 + kSlop);
      return element(0x1p-2, 0.25, kE2m1Max, std::max(ideal - off, 0.0), ideal + off);
    }
    case WeightFormat::int4:
      return group_amax / 15.0 + kSlop * group_amax + kTiny;
  }
  return 0.0;
}

}  // namespace moetune
