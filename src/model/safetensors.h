// The safetensors file format: 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes without
// gaps. https://huggingface.co/docs/safetensors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fields.h"

namespace moetune {

/// Element types as the format spells them.
enum class Dtype {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};

template <>
struct EnumNames<Dtype> {
  static constexpr std::array<std::string_view, 22> names = {
      "BOOL", "F4",  "F6_E2M3", "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
      "I16",  "U16", "F16",     "BF16",    "I32", "U32", "F32",     "C64",     "F64",     "I64",         "U64"};
};

/// Bits of one element; 4 and 6 for the packed types.
[[nodiscard]] int bits(Dtype dtype);

/// Where one tensor lies in the file.
struct TensorEntry {
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;  ///< outermost first; empty for a scalar
  std::uint64_t begin = 0;          ///< bytes, counted from the end of the header
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::uint64_t data_start = 0;  ///< bytes from the start of the file
  std::map<std::string, TensorEntry, std::less<>> tensors;
};

/// Reads the header of a whole file's bytes; the tensors' own bytes are not touched. Nothing is believed: the header's
/// length (at most 100 MB) and syntax, names that repeat, unknown types, shapes whose product overflows, offsets that
/// overlap, leave holes, do not fit the shape or the file are each an error that names the tensor and the numbers.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file);

}  // namespace moetune
