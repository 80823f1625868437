// Weights in their stored format to floats in registers, four vectors at a time.
//
// A chunk is 4·kLanes consecutive weights of a row. Formats are decoded in whatever order is cheapest; activations are
// brought into the same order once per call. The order is a stride s: within each block of s·kLanes weights, lane i of
// vector j holds weight s·i + j.
#if defined(MOETUNE_CPU_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MOETUNE_CPU_WEIGHTS_INL_H_
#undef MOETUNE_CPU_WEIGHTS_INL_H_
#else
#define MOETUNE_CPU_WEIGHTS_INL_H_
#endif

#include "cpu/simd_ops-inl.h"
#include "formats/convert.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

inline constexpr std::int64_t kChunk = 4 * kLanes;

/// One element of a row that need not be aligned.
template <class T>
HWY_INLINE T load_element(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

#if HWY_TARGET != HWY_SCALAR
/// The u32 lanes at `data`, which need not be aligned.
HWY_INLINE hn::Vec<hn::Repartition<std::uint32_t, FloatTag>> load_words(const std::byte* data) {
  const hn::Repartition<std::uint8_t, FloatTag> bytes;
  const hn::Repartition<std::uint32_t, FloatTag> words;
  return hn::BitCast(words, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(data)));
}

/// Two bf16 per lane to two vectors of floats: the even and the odd ones.
template <class V>
HWY_INLINE void widen_bf16(V pairs, Floats& even, Floats& odd) {
  const FloatTag d;
  const hn::Repartition<std::uint32_t, FloatTag> words;
  even = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
  odd = hn::BitCast(d, hn::And(pairs, hn::Set(words, 0xffff0000U)));
}
#endif

/// Floats, for weights that were dequantised before.
struct FloatWeights {
  static constexpr std::int64_t kStride = 1;
  static constexpr std::int64_t kChunkBytes = 4 * kChunk;
  static constexpr float kInputScale = 1.0F, kResultScale = 1.0F;
  static HWY_INLINE void load(const std::byte* data, Floats (&w)[4]) {
    const FloatTag d;
    MOETUNE_UNROLL
    for (int j = 0; j < 4; ++j) w[j] = hn::LoadU(d, reinterpret_cast<const float*>(data) + j * kLanes);
  }
};

struct Bf16Weights {
  static constexpr std::int64_t kStride = kLanes == 1 ? 1 : 2;
  static constexpr std::int64_t kChunkBytes = 2 * kChunk;
  static constexpr float kInputScale = 1.0F, kResultScale = 1.0F;
  static HWY_INLINE void load(const std::byte* data, Floats (&w)[4]) {
#if HWY_TARGET == HWY_SCALAR
    for (int j = 0; j < 4; ++j) w[j] = hn::Set(FloatTag(), bf16_to_float(load_element<std::uint16_t>(data, j)));
#else
    widen_bf16(load_words(data), w[0], w[1]);
    widen_bf16(load_words(data + kChunkBytes / 2), w[2], w[3]);
#endif
  }
};

struct Fp16Weights {
  static constexpr std::int64_t kStride = 1;
  static constexpr std::int64_t kChunkBytes = 2 * kChunk;
  static constexpr float kInputScale = 1.0F, kResultScale = 1.0F;
  static HWY_INLINE void load(const std::byte* data, Floats (&w)[4]) {
#if HWY_TARGET == HWY_SCALAR
    for (int j = 0; j < 4; ++j) w[j] = hn::Set(FloatTag(), fp16_to_float(load_element<std::uint16_t>(data, j)));
#else
    const FloatTag d;
    const hn::Rebind<hwy::float16_t, FloatTag> half;
    const hn::Rebind<std::uint16_t, FloatTag> bits;
    const hn::Repartition<std::uint8_t, decltype(bits)> bytes;
    MOETUNE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const auto raw = hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(data) + 2 * j * kLanes);
      w[j] = hn::PromoteTo(d, hn::BitCast(half, hn::BitCast(bits, raw)));
    }
#endif
  }
};

/// E4M3. NaN codes, which weights from a file must not have (formats/dequantize.h), read as ±480.
///
/// AVX-512: seven to the left of its place in a 16-bit lane, sign apart, a byte is the fp16 of 2^-8 times its value
/// (the exponent biases 15 and 7 differ by 8), and the conversion of fp16 takes subnormals at full speed. Others: a
/// byte moved into the upper half of a 16-bit lane and four to the right, sign kept, is the bf16 of 2^-120 times its
/// value, subnormals included; three operations fewer, but Intel's processors multiply subnormal floats a hundred times
/// slower. 2^-120 times a small input would be lost, so inputs carry 2^48 (any up to 2^79 is still finite) and results
/// are brought back by 2^72.
struct Fp8Weights {
  static constexpr std::int64_t kChunkBytes = kChunk;
#if HWY_TARGET == HWY_SCALAR
  static constexpr std::int64_t kStride = 1;
  static constexpr float kInputScale = 1.0F, kResultScale = 1.0F;
  static HWY_INLINE void load(const std::byte* data, Floats (&w)[4]) {
    for (int j = 0; j < 4; ++j) w[j] = hn::Set(FloatTag(), e4m3_to_float(load_element<std::uint8_t>(data, j)));
  }
#elif HWY_CAP_GE512
  static constexpr std::int64_t kStride = 2;
  static constexpr float kInputScale = 1.0F, kResultScale = 0x1p8F;
  static HWY_INLINE void load(const std::byte* data, Floats (&w)[4]) {
    const hn::Repartition<std::int16_t, FloatTag> halves;
    const auto keep = hn::Set(halves, static_cast<std::int16_t>(0xbf80 - 0x10000));
    const auto pairs = hn::BitCast(halves, load_words(data));
    promote(hn::And(hn::ShiftRight<1>(hn::ShiftLeft<8>(pairs)), keep), w[0], w[2]);
    promote(hn::And(hn::ShiftRight<1>(pairs), keep), w[1], w[3]);
  }

 private:
  template <class V>
  static HWY_INLINE void promote(V all, Floats& lower, Floats& upper) {
    const FloatTag d;
    const hn::Rebind<hwy::float16_t, FloatTag> half;
    const hn::Rebind<std::int16_t, FloatTag> bits;
    lower = hn::PromoteTo(d, hn::BitCast(half, hn::LowerHalf(bits, all)));
    upper = hn::PromoteTo(d, hn::BitCast(half, hn::UpperHalf(bits, all)));
  }
#else
  static constexpr std::int64_t kStride = 4;
  static constexpr float kInputScale = 0x1p48F, kResultScale = 0x1p72F;
  static HWY_INLINE void load(const std::byte* data, Floats (&w)[4]) {
    const hn::Repartition<std::int16_t, FloatTag> halves;
    const hn::Repartition<std::uint32_t, FloatTag> words;
    const auto keep = hn::Set(halves, static_cast<std::int16_t>(0x87f0 - 0x10000));
    const auto pairs = hn::BitCast(halves, load_words(data));
    const auto even = hn::And(hn::ShiftRight<4>(hn::ShiftLeft<8>(pairs)), keep);
    const auto odd = hn::And(hn::ShiftRight<4>(pairs), keep);
    widen_bf16(hn::BitCast(words, even), w[0], w[2]);
    widen_bf16(hn::BitCast(words, odd), w[1], w[3]);
  }
#endif
};

/// Multiplies the chunk of a row at `column`, of whose E4M3 weights `columns` exist, by its MX scales (a power of two
/// per 32 columns) times `factor`. `scales` are those of the whole row.
HWY_INLINE void scale_mx_chunk(const std::byte* scales, std::int64_t column, std::int64_t columns, float factor,
                               Floats (&w)[4]) {
  constexpr std::int64_t kGroup = 32;
  const auto scale = [scales, factor](std::int64_t group) HWY_ATTR {
    return hn::Set(FloatTag(), e8m0_to_float(load_element<std::uint8_t>(scales, group)) * factor);
  };
  const Floats first = scale(column / kGroup);
  Floats second = first;  // of a chunk of 64, whose vectors 2 and 3 hold the weights from 32 on
  if (kChunk > kGroup && columns > kGroup) second = scale(column / kGroup + 1);
  MOETUNE_UNROLL
  for (std::size_t j = 0; j < 4; ++j) w[j] = hn::Mul(w[j], j < 2 ? first : second);
}

/// Floats of one arranged row of k activations: whole chunks.
constexpr std::int64_t arranged_floats(std::int64_t k) { return round_up(k, kChunk < 16 ? 16 : kChunk); }

/// Brings a row of activations into the order of `Weights`, times its input scale; zeros up to whole chunks.
template <class Weights>
void arrange_floats(const float* input, std::int64_t k, std::byte* out) {
  constexpr std::int64_t kStride = Weights::kStride;
  constexpr std::int64_t kBlock = kStride * kLanes;
  float* floats = reinterpret_cast<float*>(out);
  const std::int64_t whole = k / kBlock * kBlock;
  for (std::int64_t block = 0; block < whole; block += kBlock)
    for (std::int64_t j = 0; j < kStride; ++j)
      for (std::int64_t i = 0; i < kLanes; ++i)
        floats[block + j * kLanes + i] = input[block + kStride * i + j] * Weights::kInputScale;
  for (std::int64_t at = whole; at < arranged_floats(k); ++at) floats[at] = 0.0F;
  for (std::int64_t at = whole; at < k; ++at) {
    const std::int64_t offset = at - whole;
    floats[whole + offset % kStride * kLanes + offset / kStride] = input[at] * Weights::kInputScale;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#endif
