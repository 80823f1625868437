// Number formats of weights and activations, and how a matrix of weights lies in memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/fields.h"

namespace moetune {

/// Element formats of expert weights. Layouts: see MatrixView.
enum class WeightFormat { bf16, fp16, fp8_tensor, fp8_channel, fp8_block, mxfp8, nvfp4, mxfp4, int4 };

template <>
struct EnumNames<WeightFormat> {
  static constexpr std::array<std::string_view, 9> names = {"bf16",  "fp16",  "fp8_tensor", "fp8_channel", "fp8_block",
                                                            "mxfp8", "nvfp4", "mxfp4",      "int4"};
};

/// What the checkpoint asks the layer's input activations to be. On a CPU all are computed as bf16 input with fp32
/// accumulation.
enum class ActivationFormat { bf16, fp16, fp8, mxfp8, nvfp4 };

template <>
struct EnumNames<ActivationFormat> {
  static constexpr std::array<std::string_view, 5> names = {"bf16", "fp16", "fp8", "mxfp8", "nvfp4"};
};

/// A weight format with the sizes it leaves open.
struct WeightSpec {
  WeightFormat format = WeightFormat::bf16;
  std::int64_t block_n = 0;  ///< rows that share a scale: fp8_block only (usually 128)
  std::int64_t block_k =
      0;  ///< columns that share a scale: fp8_block (128), mxfp8 (32), nvfp4 (16), mxfp4 (32), int4 (its group)
  bool zero_point = false;  ///< int4 with a zero point per group (AWQ, asymmetric GPTQ); without: value = nibble - 8

  bool operator==(const WeightSpec&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("format", self.format);
    visit("block_n", self.block_n);
    visit("block_k", self.block_k);
    visit("zero_point", self.zero_point);
  }

  static WeightSpec bf16() { return {WeightFormat::bf16, 0, 0, false}; }
  static WeightSpec fp16() { return {WeightFormat::fp16, 0, 0, false}; }
  static WeightSpec fp8_tensor() { return {WeightFormat::fp8_tensor, 0, 0, false}; }
  static WeightSpec fp8_channel() { return {WeightFormat::fp8_channel, 0, 0, false}; }
  static WeightSpec fp8_block(std::int64_t n = 128, std::int64_t k = 128) {
    return {WeightFormat::fp8_block, n, k, false};
  }
  static WeightSpec mxfp8() { return {WeightFormat::mxfp8, 0, 32, false}; }
  static WeightSpec nvfp4() { return {WeightFormat::nvfp4, 0, 16, false}; }
  static WeightSpec mxfp4() { return {WeightFormat::mxfp4, 0, 32, false}; }
  static WeightSpec int4(std::int64_t group, bool zero_point = false) {
    return {WeightFormat::int4, 0, group, zero_point};
  }
};

/// For people: "fp8_block [128,128]", "int4 group 32", "nvfp4".
[[nodiscard]] std::string describe(const WeightSpec& spec);

/// Whether two elements share a byte.
[[nodiscard]] constexpr bool is_four_bit(WeightFormat format) {
  return format == WeightFormat::nvfp4 || format == WeightFormat::mxfp4 || format == WeightFormat::int4;
}

/// ⌈a / b⌉ for a ≥ 0, b > 0: blocks of b that cover a elements. No blocks where b is not positive.
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return b > 0 ? a / b + (a % b != 0 ? 1 : 0) : 0;
}

/// Bytes of the three parts of an N × K matrix (rows × columns). K must be even for four-bit formats.
struct MatrixBytes {
  std::int64_t data = 0, scales = 0, zeros = 0;
  [[nodiscard]] std::int64_t total() const { return data + scales + zeros; }
};
[[nodiscard]] MatrixBytes matrix_bytes(const WeightSpec& spec, std::int64_t n, std::int64_t k);

/// One expert's projection W, N output rows × K input columns, row-major, y = W x. Canonical layout, without padding:
///
///   format       data                                   scales (what multiplies an element)                zeros
///   bf16, fp16   u16 [N,K]                              none                                               none
///   fp8_tensor   e4m3 [N,K]                             f32 [1]                                            none
///   fp8_channel  e4m3 [N,K]                             f32 [N]                                            none
///   fp8_block    e4m3 [N,K]                             f32 [ceil N/block_n, ceil K/block_k]               none
///   mxfp8        e4m3 [N,K]                             e8m0 [N, ceil K/32]                                none
///   nvfp4        e2m1 [N,K/2], even k in the low nibble e4m3 [N, ceil K/16], and global_scale multiplies   none
///   mxfp4        e2m1 [N,K/2], even k in the low nibble e8m0 [N, ceil K/32]                                none
///   int4         u4 [N,K/2], even k in the low nibble   f32 [N, ceil K/block_k]; value = (u - zero) scale  u8 [N, ceil
///   K/block_k]
///                                                                                                          or none
///                                                                                                          (zero = 8)
struct MatrixView {
  WeightSpec spec;
  std::int64_t n = 0, k = 0;
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* zeros = nullptr;
  float global_scale =
      1.0F;  ///< nvfp4: a multiplier (modelopt's weight_scale_2; the inverse of compressed-tensors' global scale)
};

}  // namespace moetune
