// The decode form for four-bit weights: exact integer dot products.
//
// Each 128 inputs become 16-bit integers x = 256 hi + lo (hi and lo signed bytes) with one float scale, a step of
// amax / 32639. A weight code becomes an unsigned byte u = 2 w + 12 (e2m1) or its nibble (int4), looked up 32 or 64 at
// a time; multiply-add instructions of unsigned by signed bytes give Σ u hi and Σ u lo, and Σ w x follows by
// subtracting offset · Σ x, which is known per input. All sums are exact: at most 24 · 8 · 32639 < 2^23 per lane.
#if defined(MOETUNE_CPU_NIBBLE_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MOETUNE_CPU_NIBBLE_DECODE_INL_H_
#undef MOETUNE_CPU_NIBBLE_DECODE_INL_H_
#else
#define MOETUNE_CPU_NIBBLE_DECODE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>

#include "cpu/decode_tile-inl.h"
#include "cpu/weights-inl.h"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

/// Weights of one step, and the vectors that hold their codes.
inline constexpr std::int64_t kNibbleChunk = 128;
inline constexpr std::int64_t kNibbleBytes = kNibbleChunk / 2;
inline constexpr std::size_t kNibbleVectors = static_cast<std::size_t>(kNibbleBytes / (4 * kLanes));

/// 128 inputs. Byte b of a row of codes holds the weights 2b and 2b + 1.
struct alignas(64) NibbleInputs {
  std::int8_t hi_even[kNibbleBytes], hi_odd[kNibbleBytes], lo_even[kNibbleBytes], lo_odd[kNibbleBytes];
  std::int32_t correction[kNibbleBytes / 4];  ///< -offset · Σ x of the eight weights of a lane
  float sums[kNibbleBytes / 4];               ///< -Σ x of the same
  float scale;
};

using ByteTag = hn::Repartition<std::uint8_t, FloatTag>;
using SignedByteTag = hn::Repartition<std::int8_t, FloatTag>;
using IntTag = hn::Repartition<std::int32_t, FloatTag>;
using Bytes = hn::Vec<ByteTag>;
using SignedBytes = hn::Vec<SignedByteTag>;
using Ints = hn::Vec<IntTag>;

/// Lane i: start[i] + Σ over its four bytes of even·x_even + odd·x_odd, where x = 256 hi + lo.
HWY_INLINE Ints dot_digits(Bytes even, Bytes odd, SignedBytes hi_even, SignedBytes hi_odd, SignedBytes lo_even,
                           SignedBytes lo_odd, Ints start) {
#if HWY_TARGET == HWY_AVX3_DL
  const Ints hi = dot_bytes(dot_bytes(hn::Zero(IntTag()), even, hi_even), odd, hi_odd);
  return hn::Add(hn::ShiftLeft<8>(hi), dot_bytes(dot_bytes(start, even, lo_even), odd, lo_odd));
#else
  // Sums of four products of at most 24 · 128 fit 16 bits.
  const __m256i hi =
      _mm256_add_epi16(_mm256_maddubs_epi16(even.raw, hi_even.raw), _mm256_maddubs_epi16(odd.raw, hi_odd.raw));
  const __m256i lo =
      _mm256_add_epi16(_mm256_maddubs_epi16(even.raw, lo_even.raw), _mm256_maddubs_epi16(odd.raw, lo_odd.raw));
  const __m256i pairs =
      _mm256_add_epi32(_mm256_madd_epi16(hi, _mm256_set1_epi16(256)), _mm256_madd_epi16(lo, _mm256_set1_epi16(1)));
  return hn::Add(Ints{pairs}, start);
#endif
}

/// Codes of a row and its scales.
struct NibbleRow {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* zeros = nullptr;
  std::int64_t last_group = 0;
  int group_shift = 0;  ///< int4: log2 of the columns that share a scale
};

/// For the eight weights that each lane sums.
using LaneFloats = Floats[kNibbleVectors];

/// The `kBytes` scale bytes of 128 columns in every block; kPartial: only those up to the row's last group, then zeros.
template <std::int64_t kBytes, bool kPartial>
HWY_INLINE Bytes scale_bytes(const NibbleRow& row, std::int64_t chunk) {
  using Word = std::conditional_t<kBytes == 8, std::uint64_t, std::uint32_t>;
  static_assert(sizeof(Word) == kBytes);
  const std::int64_t count = kPartial ? row.last_group + 1 - chunk * kBytes : kBytes;
  Word word = 0;
  std::memcpy(&word, row.scales + chunk * kBytes, static_cast<std::size_t>(count));
  return hn::BitCast(ByteTag(), hn::Set(hn::Repartition<Word, FloatTag>(), word));
}

/// E2M1 with an E4M3 scale per 16 weights: two lanes. The scale's bits are moved into those of a float, which is 2^-120
/// times its value; kInputScale and kResultScale make up for that, and for the doubled weights.
struct Nvfp4Weights {
  static constexpr int kOffset = 12;
  static constexpr bool kHasZeros = false, kLooksUp = true;
  static constexpr float kInputScale = 0x1p60F, kResultScale = 0x1p59F;

  static float row_scale(const MatrixView& matrix) { return matrix.global_scale * kResultScale; }

  template <bool kPartial>
  static HWY_INLINE void lane_scales(const NibbleRow& row, std::int64_t chunk, LaneFloats& out) {
    const FloatTag d;
    const Bytes all = scale_bytes<8, kPartial>(row, chunk);
    constexpr std::uint8_t z = 128;  // looks up 0
#if HWY_CAP_GE512
    alignas(64) static constexpr std::uint8_t kOrder[64] = {
        0, z, z, z, 0, z, z, z, 1, z, z, z, 1, z, z, z, 2, z, z, z, 2, z, z, z, 3, z, z, z, 3, z, z, z,
        4, z, z, z, 4, z, z, z, 5, z, z, z, 5, z, z, z, 6, z, z, z, 6, z, z, z, 7, z, z, z, 7, z, z, z};
    const auto spread = hn::BitCast(IntTag(), hn::TableLookupBytesOr0(all, hn::Load(ByteTag(), kOrder)));
    out[0] = hn::BitCast(d, hn::ShiftLeft<20>(spread));
#else
    // Groups 0 1 4 5 and 2 3 6 7: interleaved with itself, each gets its two lanes.
    alignas(32) static constexpr std::uint8_t kOrder[32] = {0, z, z, z, 1, z, z, z, 4, z, z, z, 5, z, z, z,
                                                            2, z, z, z, 3, z, z, z, 6, z, z, z, 7, z, z, z};
    const auto spread = hn::BitCast(IntTag(), hn::TableLookupBytesOr0(all, hn::Load(ByteTag(), kOrder)));
    const Floats scales = hn::BitCast(d, hn::ShiftLeft<20>(spread));
    out[0] = hn::InterleaveLower(d, scales, scales);
    out[1] = hn::InterleaveUpper(d, scales, scales);
#endif
  }
  static HWY_INLINE void lane_zeros(const NibbleRow&, std::int64_t, LaneFloats&) {}
};

/// E2M1 with an E8M0 scale per 32 weights: four lanes, one 128-bit block.
struct Mxfp4Weights {
  static constexpr int kOffset = 12;
  static constexpr bool kHasZeros = false, kLooksUp = true;
  static constexpr float kInputScale = 1.0F, kResultScale = 0.5F;

  static float row_scale(const MatrixView&) { return kResultScale; }

  template <bool kPartial>
  static HWY_INLINE void lane_scales(const NibbleRow& row, std::int64_t chunk, LaneFloats& out) {
    const hn::Repartition<std::uint32_t, FloatTag> words;
    const Bytes all = scale_bytes<4, kPartial>(row, chunk);
    constexpr std::uint8_t z = 128;  // looks up 0
    alignas(64) static constexpr std::uint8_t kOrder[64] = {
        z, z, z, 0, z, z, z, 0, z, z, z, 0, z, z, z, 0, z, z, z, 1, z, z, z, 1, z, z, z, 1, z, z, z, 1,
        z, z, z, 2, z, z, z, 2, z, z, z, 2, z, z, z, 2, z, z, z, 3, z, z, z, 3, z, z, z, 3, z, z, z, 3};
    const auto least = hn::Set(words, 0x00400000U);  // code 0 is 2^-127
    MOETUNE_UNROLL
    for (std::size_t v = 0; v < kNibbleVectors; ++v) {
      const Bytes order = hn::Load(ByteTag(), kOrder + v * static_cast<std::size_t>(4 * kLanes));
      const auto spread = hn::BitCast(words, hn::TableLookupBytesOr0(all, order));
      out[v] = hn::BitCast(FloatTag(), hn::Max(hn::ShiftRight<1>(spread), least));
    }
  }
  static HWY_INLINE void lane_zeros(const NibbleRow&, std::int64_t, LaneFloats&) {}
};

/// Nibbles with a float scale per group of 32, 64, 128, … weights, less 8 or less a zero point per group.
template <bool kZeros>
struct Int4Weights {
  static constexpr int kOffset = kZeros ? 0 : 8;
  static constexpr bool kHasZeros = kZeros, kLooksUp = false;
  static constexpr float kInputScale = 1.0F, kResultScale = 1.0F;

  static float row_scale(const MatrixView&) { return kResultScale; }

  template <bool kPartial>
  static HWY_INLINE void lane_scales(const NibbleRow& row, std::int64_t chunk, LaneFloats& out) {
    spread(row, chunk, out, [&row](std::int64_t group) HWY_ATTR { return load_element<float>(row.scales, group); });
  }
  static HWY_INLINE void lane_zeros(const NibbleRow& row, std::int64_t chunk, LaneFloats& out) {
    spread(row, chunk, out, [&row](std::int64_t group) HWY_ATTR {
      return static_cast<float>(load_element<std::uint8_t>(row.zeros, group));
    });
  }

 private:
  /// value(group) of the group that each lane's weights are in.
  template <class Value>
  static HWY_INLINE void spread(const NibbleRow& row, std::int64_t chunk, LaneFloats& out, const Value& value) {
    constexpr std::int64_t kBlock = 32;  // weights of four lanes
    const FloatTag d;
    const std::int64_t column = chunk * kNibbleChunk;
    if (row.group_shift >= 7) {
      const Floats one = hn::Set(d, value(column >> row.group_shift));
      MOETUNE_UNROLL
      for (std::size_t v = 0; v < kNibbleVectors; ++v) out[v] = one;
      return;
    }
    alignas(64) float lanes[kNibbleChunk / 8];
    for (std::int64_t block = 0; block < kNibbleChunk / kBlock; ++block) {
      const float one = value(std::min((column + block * kBlock) >> row.group_shift, row.last_group));
      hn::Store(hn::Set(hn::FixedTag<float, 4>(), one), hn::FixedTag<float, 4>(), lanes + block * 4);
    }
    MOETUNE_UNROLL
    for (std::size_t v = 0; v < kNibbleVectors; ++v) out[v] = hn::Load(d, lanes + v * static_cast<std::size_t>(kLanes));
  }
};

template <class Weights, std::size_t kRows, std::size_t kPairs>
class NibbleBlock;

template <class Weights>
struct NibbleSource {
  static constexpr bool kDequantizesFirst = false;
  using Row = NibbleRow;
  template <std::size_t kRows, std::size_t kPairs>
  using Block = NibbleBlock<Weights, kRows, kPairs>;

  static std::int64_t row_bytes(const MatrixView& matrix) { return matrix.k / 2; }

  class Rows {
   public:
    Rows(const MatrixView& matrix, std::int64_t row) : code_bytes_(row_bytes(matrix)) {
      const std::int64_t width = matrix.spec.block_k;
      groups_ = ceil_div(matrix.k, width);
      scale_bytes_ = groups_ * (matrix.spec.format == WeightFormat::int4 ? std::int64_t{sizeof(float)} : 1);
      next_ = {matrix.data + row * code_bytes_, matrix.scales + row * scale_bytes_, nullptr, groups_ - 1, 0};
      if (Weights::kHasZeros) next_.zeros = matrix.zeros + row * groups_;
      // One group: any shift that leaves nothing of a column.
      next_.group_shift = width >= matrix.k ? 62 : std::countr_zero(static_cast<std::uint64_t>(width));
    }
    HWY_INLINE NibbleRow take(std::byte*) {
      const NibbleRow row = next_;
      next_.codes += code_bytes_;
      next_.scales += scale_bytes_;
      if (Weights::kHasZeros) next_.zeros += groups_;
      return row;
    }

   private:
    NibbleRow next_;
    std::int64_t code_bytes_, scale_bytes_ = 0, groups_ = 0;
  };
};

/// kRows rows against kPairs inputs.
template <class Weights, std::size_t kRows, std::size_t kPairs>
class NibbleBlock {
 public:
  NibbleBlock(const NibbleRow* rows, const std::byte* const* inputs, const MatrixView& matrix)
      : k_(matrix.k), row_scale_(Weights::row_scale(matrix)) {
    MOETUNE_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) rows_[r] = rows[r];
    MOETUNE_UNROLL
    for (std::size_t p = 0; p < kPairs; ++p) inputs_[p] = reinterpret_cast<const NibbleInputs*>(inputs[p]);
  }

  HWY_NOINLINE void run(Prefetcher prefetcher, float (&sums)[kRows * kPairs]) {
    Floats totals[kAll];
    MOETUNE_UNROLL
    for (std::size_t i = 0; i < kAll; ++i) totals[i] = hn::Zero(FloatTag());
    const std::int64_t whole = k_ / kNibbleChunk;
    for (std::int64_t chunk = 0; chunk < whole; ++chunk) {
      prefetcher.advance(std::int64_t{kRows} * kNibbleBytes);
      add_chunk<false>(chunk, totals);
    }
    if (whole * kNibbleChunk < k_) add_chunk<true>(whole, totals);
    sum_lanes(totals, sums);
    for (float& sum : sums) sum *= row_scale_;
  }

 private:
  static constexpr std::size_t kAll = kRows * kPairs;

  /// kPartial: the row ends within the chunk; the inputs are 0 beyond.
  template <bool kPartial>
  HWY_INLINE void add_chunk(std::int64_t chunk, Floats (&totals)[kAll]) {
    MOETUNE_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      keep_order();
      const std::byte* codes = rows_[r].codes + chunk * kNibbleBytes;
      Bytes even[kNibbleVectors], odd[kNibbleVectors];
      LaneFloats scales, zeros;
      if constexpr (kPartial) {
        std::byte padded[static_cast<std::size_t>(kNibbleBytes)] = {};
        std::memcpy(padded, codes, static_cast<std::size_t>(k_ / 2 - chunk * kNibbleBytes));
        unpack(padded, even, odd);
      } else {
        unpack(codes, even, odd);
      }
      Weights::template lane_scales<kPartial>(rows_[r], chunk, scales);
      Weights::lane_zeros(rows_[r], chunk, zeros);
      MOETUNE_UNROLL
      for (std::size_t p = 0; p < kPairs; ++p)
        totals[r * kPairs + p] = add_dots(inputs_[p][chunk], even, odd, scales, zeros, totals[r * kPairs + p]);
    }
  }

  /// Codes to the unsigned bytes that are multiplied.
  static HWY_INLINE void unpack(const std::byte* codes, Bytes (&even)[kNibbleVectors], Bytes (&odd)[kNibbleVectors]) {
    const ByteTag b;
    const hn::Repartition<std::uint16_t, FloatTag> halves;
    const Bytes low = hn::Set(b, std::uint8_t{15});
    MOETUNE_UNROLL
    for (std::size_t v = 0; v < kNibbleVectors; ++v) {
      const Bytes pairs =
          hn::LoadU(b, reinterpret_cast<const std::uint8_t*>(codes) + v * static_cast<std::size_t>(4 * kLanes));
      even[v] = hn::And(pairs, low);
      odd[v] = hn::And(hn::BitCast(b, hn::ShiftRight<4>(hn::BitCast(halves, pairs))), low);
      if constexpr (Weights::kLooksUp) {
        // Twice the values of E2M1, plus 12.
        alignas(16) static constexpr std::uint8_t kValues[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                                 12, 11, 10, 9,  8,  6,  4,  0};
        const Bytes table = hn::LoadDup128(b, kValues);
        even[v] = hn::TableLookupBytes(table, even[v]);
        odd[v] = hn::TableLookupBytes(table, odd[v]);
      }
    }
  }

  static HWY_INLINE Floats add_dots(const NibbleInputs& x, const Bytes (&even)[kNibbleVectors],
                                    const Bytes (&odd)[kNibbleVectors], const LaneFloats& scales,
                                    const LaneFloats& zeros, Floats total) {
    const FloatTag d;
    const SignedByteTag s;
    Floats sum = hn::Zero(d);
    MOETUNE_UNROLL
    for (std::size_t v = 0; v < kNibbleVectors; ++v) {
      const std::size_t at = v * static_cast<std::size_t>(4 * kLanes);
      const std::size_t lane = v * static_cast<std::size_t>(kLanes);
      const Ints dots =
          dot_digits(even[v], odd[v], hn::Load(s, x.hi_even + at), hn::Load(s, x.hi_odd + at),
                     hn::Load(s, x.lo_even + at), hn::Load(s, x.lo_odd + at), hn::Load(IntTag(), x.correction + lane));
      Floats value = hn::ConvertTo(d, dots);
      if constexpr (Weights::kHasZeros) value = hn::MulAdd(zeros[v], hn::Load(d, x.sums + lane), value);
      sum = v == 0 ? hn::Mul(value, scales[v]) : hn::MulAdd(value, scales[v], sum);
    }
    return hn::MulAdd(sum, hn::Set(d, x.scale), total);
  }

  NibbleRow rows_[kRows];
  const NibbleInputs* inputs_[kPairs];
  std::int64_t k_;
  float row_scale_;
};

/// 128 inputs (zeros included) to digits.
template <class Weights>
void arrange_digits(const float* input, NibbleInputs& out) {
  constexpr float kMost = 32639.0F;  // 127 · 256 + 127
  float amax = 0.0F;
  for (std::int64_t i = 0; i < kNibbleChunk; ++i) amax = std::max(amax, std::fabs(input[i]));
  const float inverse = amax > 0.0F ? kMost / amax : 0.0F;
  std::int32_t digits[kNibbleChunk];
  const FloatTag d;
  for (std::int64_t i = 0; i < kNibbleChunk; i += kLanes)
    hn::StoreU(hn::NearestInt(hn::Mul(hn::LoadU(d, input + i), hn::Set(d, inverse))), IntTag(), digits + i);
  for (std::int64_t b = 0; b < kNibbleBytes; ++b) {
    const std::int32_t even = digits[2 * b], odd = digits[2 * b + 1];
    out.hi_even[b] = static_cast<std::int8_t>((even + 128) >> 8);
    out.hi_odd[b] = static_cast<std::int8_t>((odd + 128) >> 8);
    out.lo_even[b] = static_cast<std::int8_t>(even);
    out.lo_odd[b] = static_cast<std::int8_t>(odd);
  }
  for (std::int64_t lane = 0; lane < kNibbleBytes / 4; ++lane) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < 8; ++i) sum += digits[8 * lane + i];
    out.correction[lane] = -Weights::kOffset * sum;
    out.sums[lane] = static_cast<float>(-sum);
  }
  out.scale = amax / kMost * Weights::kInputScale;
}

template <class Weights>
void arrange_nibble_inputs(const float* input, std::int64_t k, std::byte* out) {
  auto* chunks = reinterpret_cast<NibbleInputs*>(out);
  const std::int64_t whole = k / kNibbleChunk;
  for (std::int64_t chunk = 0; chunk < whole; ++chunk)
    arrange_digits<Weights>(input + chunk * kNibbleChunk, chunks[chunk]);
  if (whole * kNibbleChunk == k) return;
  float padded[kNibbleChunk] = {};
  std::copy(input + whole * kNibbleChunk, input + k, padded);
  arrange_digits<Weights>(padded, chunks[whole]);
}

template <class Weights>
TileKernel nibble_decode_kernel(std::int64_t k, const DecodeShape& shape) {
  TileKernel kernel;
  kernel.input_bytes = ceil_div(k, kNibbleChunk) * static_cast<std::int64_t>(sizeof(NibbleInputs));
  kernel.arrange = arrange_nibble_inputs<Weights>;
  kernel.run = decode_tile_for<NibbleSource<Weights>>(shape);
  return kernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#endif

#endif
