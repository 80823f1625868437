// Element formats, one value at a time, both ways. All roundings are to nearest, ties to even, and assume the default
// floating-point environment. Exact: every decoded value is a float.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace moetune {

inline constexpr float kE4m3Max = 448.0F;  ///< 1.75 · 2^8, code 0x7e
inline constexpr float kE2m1Max = 6.0F;    ///< 1.5 · 2^2, code 0x7
inline constexpr int kE4m3MaxExponent = 8;
inline constexpr int kE2m1MaxExponent = 2;

/// bfloat16: the upper half of a float.
[[nodiscard]] constexpr float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Overflow gives infinity; a NaN stays a NaN of the same sign.
[[nodiscard]] constexpr std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// IEEE binary16, subnormals included.
[[nodiscard]] constexpr float fp16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1fU ? 0xffU : exponent + 127U - 15U;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

/// Overflow gives infinity; a NaN stays a NaN of the same sign.
[[nodiscard]] constexpr std::uint16_t float_to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= std::bit_cast<std::uint32_t>(65520.0F)) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (magnitude < std::bit_cast<std::uint32_t>(0x1p-14F)) {
    // One step of 0.5 in float is one step of a binary16 subnormal, 2^-24, so that the addition does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - ((127U - 15U) << 23)) >> 13));
}

namespace detail {

constexpr float decode_e4m3(std::uint32_t code) {
  const std::uint32_t exponent = (code >> 3) & 0xfU;
  const std::uint32_t mantissa = code & 7U;
  if ((code & 0x7fU) == 0x7fU) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9F
                                        : std::bit_cast<float>(((exponent + 127U - 7U) << 23) | (mantissa << 20));
  return (code & 0x80U) != 0 ? -magnitude : magnitude;
}

constexpr std::array<float, 256> e4m3_table() {
  std::array<float, 256> table{};
  for (std::uint32_t code = 0; code < 256; ++code) table[code] = decode_e4m3(code);
  return table;
}

}  // namespace detail

/// FP8 E4M3 as OCP defines it ("e4m3fn"): bias 7, no infinity, NaN 0x7f and 0xff, largest 448, smallest 2^-9.
inline constexpr std::array<float, 256> kE4m3Values = detail::e4m3_table();
/// FP4 E2M1: no infinity, no NaN. Bit 3 is the sign.
inline constexpr std::array<float, 16> kE2m1Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                                      -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

[[nodiscard]] constexpr float e4m3_to_float(std::uint8_t code) { return kE4m3Values[code]; }

/// Saturates: what is beyond 448, infinity too, becomes 448 of that sign. NaN stays NaN.
[[nodiscard]] constexpr std::uint8_t float_to_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint8_t>(sign | 0x7fU);
  if (magnitude >= std::bit_cast<std::uint32_t>(kE4m3Max)) return static_cast<std::uint8_t>(sign | 0x7eU);
  if (magnitude < std::bit_cast<std::uint32_t>(0x1p-6F)) {
    // One step of 2^14 in float is one step of an e4m3 subnormal, 2^-9, so that the addition does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14F;
    return static_cast<std::uint8_t>(sign |
                                     (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0x1p14F)));
  }
  const std::uint32_t rounded = magnitude + 0x7ffffU + ((magnitude >> 20) & 1U);
  return static_cast<std::uint8_t>(sign | ((rounded - ((127U - 7U) << 23)) >> 20));
}

/// The low four bits of `code`; the others are ignored.
[[nodiscard]] constexpr float e2m1_to_float(std::uint8_t code) { return kE2m1Values[code & 0xfU]; }

/// Saturates at ±6. There is no code for NaN: it becomes 0.
[[nodiscard]] constexpr std::uint8_t float_to_e2m1(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const float a = std::bit_cast<float>(bits & 0x7fffffffU);
  // One step up at each midpoint of neighbours; where the lower one has an even code, the tie stays below.
  const int code = (a > 0.25F) + (a >= 0.75F) + (a > 1.25F) + (a >= 1.75F) + (a > 2.5F) + (a >= 3.5F) + (a > 5.0F);
  return static_cast<std::uint8_t>(((bits >> 28) & 8U) | static_cast<std::uint32_t>(code));
}

/// E8M0, the scale of the MX formats: 2^(code - 127); 255 is NaN. Code 0 is 2^-127, a float subnormal.
[[nodiscard]] constexpr float e8m0_to_float(std::uint8_t code) {
  if (code == 0xffU) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 0 ? 0x00400000U : static_cast<std::uint32_t>(code) << 23);
}

/// The code of the largest power of two that is not above `value`: 2^floor(log2 value). Below 2^-127, zero and negative
/// values included: 0; infinity: 254; NaN: 255.
[[nodiscard]] constexpr std::uint8_t float_to_e8m0_floor(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0xffU;
  if ((bits >> 31) != 0) return 0;
  const std::uint32_t exponent = bits >> 23;
  return static_cast<std::uint8_t>(exponent > 254U ? 254U : exponent);
}

}  // namespace moetune
