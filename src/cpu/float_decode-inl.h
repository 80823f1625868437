// The decode form for formats that become floats in registers: dot products along K, each weight decoded once for up to
// eight inputs.
#if defined(MOETUNE_CPU_FLOAT_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MOETUNE_CPU_FLOAT_DECODE_INL_H_
#undef MOETUNE_CPU_FLOAT_DECODE_INL_H_
#else
#define MOETUNE_CPU_FLOAT_DECODE_INL_H_
#endif

#include <algorithm>

#include "cpu/tile_kernel.h"
#include "cpu/weights-inl.h"
#include "formats/dequantize.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

/// Where one row's weights and scales are.
struct FloatRow {
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;  ///< of its first segment; null: all 1
};

/// How a row's scales lie: a float per segment of columns, or none.
template <class WeightsType>
struct SegmentScaled {
  using Weights = WeightsType;
  static constexpr bool kDequantizesFirst = false;

  /// Columns that share a scale.
  static std::int64_t segment(const MatrixView& matrix) {
    return matrix.spec.format == WeightFormat::fp8_block ? matrix.spec.block_k : matrix.k;
  }
  static FloatRow row(const MatrixView& matrix, std::int64_t row, std::byte*) {
    FloatRow where{matrix.data + row * (matrix.k * Weights::kChunkBytes / kChunk), nullptr};
    constexpr std::int64_t kScale = sizeof(float);
    switch (matrix.spec.format) {
      case WeightFormat::fp8_tensor:
        where.scales = matrix.scales;
        break;
      case WeightFormat::fp8_channel:
        where.scales = matrix.scales + row * kScale;
        break;
      case WeightFormat::fp8_block:
        where.scales = matrix.scales + row / matrix.spec.block_n * ceil_div(matrix.k, matrix.spec.block_k) * kScale;
        break;
      default:
        break;
    }
    return where;
  }
  static HWY_INLINE float scale(const FloatRow& row, std::int64_t segment) {
    return Weights::kResultScale * (row.scales != nullptr ? load_element<float>(row.scales, segment) : 1.0F);
  }
  static HWY_INLINE void scale_chunk(const FloatRow&, std::int64_t, std::int64_t, Floats (&)[4]) {}
};

/// A power of two (E8M0) per 32 columns, which multiplies the weights themselves.
template <class WeightsType>
struct MxScaled {
  using Weights = WeightsType;
  static constexpr bool kDequantizesFirst = false;
  static constexpr std::int64_t kGroup = 32;

  static std::int64_t segment(const MatrixView& matrix) { return matrix.k; }
  static FloatRow row(const MatrixView& matrix, std::int64_t row, std::byte*) {
    return {matrix.data + row * matrix.k, matrix.scales + row * ceil_div(matrix.k, kGroup)};
  }
  static HWY_INLINE float scale(const FloatRow&, std::int64_t) { return 1.0F; }

  /// The result scale goes in here: weights times 2^-120 and a small scale would leave the range of floats.
  static HWY_INLINE void scale_chunk(const FloatRow& row, std::int64_t column, std::int64_t k, Floats (&w)[4]) {
    const FloatTag d;
    Floats scale = hn::Set(d, group_scale(row, column / kGroup));
#if HWY_CAP_GE512
    // Lane i holds weights 4 i … 4 i + 3 of 64: the upper half belongs to the second group.
    if (column + kGroup < k) scale = hn::ConcatLowerLower(d, hn::Set(d, group_scale(row, column / kGroup + 1)), scale);
#else
    (void)k;
#endif
    MOETUNE_UNROLL
    for (std::size_t j = 0; j < 4; ++j) w[j] = hn::Mul(w[j], scale);
  }

 private:
  static HWY_INLINE float group_scale(const FloatRow& row, std::int64_t group) {
    return e8m0_to_float(load_element<std::uint8_t>(row.scales, group)) * Weights::kResultScale;
  }
};

/// Any format and shape: rows are dequantised into scratch first, value by value.
struct DequantizedRows {
  using Weights = FloatWeights;
  static constexpr bool kDequantizesFirst = true;

  static std::int64_t segment(const MatrixView& matrix) { return matrix.k; }
  static FloatRow row(const MatrixView& matrix, std::int64_t row, std::byte* scratch) {
    dequantize_row(matrix, row, {reinterpret_cast<float*>(scratch), static_cast<std::size_t>(matrix.k)});
    return {scratch, nullptr};
  }
  static float scale(const FloatRow&, std::int64_t) { return 1.0F; }
  static HWY_INLINE void scale_chunk(const FloatRow&, std::int64_t, std::int64_t, Floats (&)[4]) {}
};

/// kRows rows against kPairs inputs.
template <class Source, std::size_t kRows, std::size_t kPairs>
class FloatBlock {
 public:
  using Weights = typename Source::Weights;

  FloatBlock(const FloatRow* rows, const std::byte* const* inputs, std::int64_t k) : k_(k) {
    MOETUNE_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) rows_[r] = rows[r];
    MOETUNE_UNROLL
    for (std::size_t p = 0; p < kPairs; ++p) inputs_[p] = reinterpret_cast<const float*>(inputs[p]);
  }

  /// Sums over all k columns, scales changing every `segment`.
  HWY_INLINE void run(std::int64_t segment, Prefetcher prefetcher, float (&sums)[kRows * kPairs]) {
    Floats totals[kRows * kPairs];
    MOETUNE_UNROLL
    for (std::size_t i = 0; i < kRows * kPairs; ++i) totals[i] = hn::Zero(FloatTag());
    for (std::int64_t first = 0, index = 0; first < k_; first += segment, ++index)
      add_segment(first, std::min(segment, k_ - first), index, prefetcher, totals);
    sum_lanes(totals, sums);
  }

 private:
  static constexpr std::size_t kAll = kRows * kPairs;
  /// Sums per row and input: with fewer than four in all, FMA latency would be the limit.
  static constexpr std::size_t kSums = kAll >= 4 ? 1 : 4 / kAll;

  HWY_INLINE void add_segment(std::int64_t first, std::int64_t columns, std::int64_t index, Prefetcher& prefetcher,
                              Floats (&totals)[kAll]) {
    const FloatTag d;
    Floats sums[kAll][kSums];
    MOETUNE_UNROLL
    for (std::size_t i = 0; i < kAll; ++i) MOETUNE_UNROLL
    for (std::size_t s = 0; s < kSums; ++s) sums[i][s] = hn::Zero(d);
    const std::int64_t end = first + columns / kChunk * kChunk;
    for (std::int64_t column = first; column < end; column += kChunk) {
      prefetcher.advance(std::int64_t{kRows} * Weights::kChunkBytes);
      add_chunk<false>(column, 0, sums);
    }
    if (end < first + columns) add_chunk<true>(end, first + columns - end, sums);
    MOETUNE_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      const Floats scale = hn::Set(d, Source::scale(rows_[r], index));
      MOETUNE_UNROLL
      for (std::size_t p = 0; p < kPairs; ++p) {
        const std::size_t i = r * kPairs + p;
        MOETUNE_UNROLL
        for (std::size_t s = 1; s < kSums; ++s) sums[i][0] = hn::Add(sums[i][0], sums[i][s]);
        totals[i] = hn::MulAdd(sums[i][0], scale, totals[i]);
      }
    }
  }

  /// One chunk from `column` on; kPartial: only `columns` of it exist, the inputs are 0 beyond.
  template <bool kPartial>
  HWY_INLINE void add_chunk(std::int64_t column, std::int64_t columns, Floats (&sums)[kAll][kSums]) {
    constexpr std::int64_t kBytes = Weights::kChunkBytes;
    const FloatTag d;
    MOETUNE_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::byte* data = rows_[r].data + column * kBytes / kChunk;
      Floats w[4];
      if constexpr (kPartial) {
        std::byte padded[static_cast<std::size_t>(kBytes)] = {};
        std::memcpy(padded, data, static_cast<std::size_t>(columns * kBytes / kChunk));
        Weights::load(padded, w);
      } else {
        Weights::load(data, w);
      }
      Source::scale_chunk(rows_[r], column, k_, w);
      MOETUNE_UNROLL
      for (std::size_t p = 0; p < kPairs; ++p) MOETUNE_UNROLL
      for (std::size_t j = 0; j < 4; ++j)
        sums[r * kPairs + p][j % kSums] =
            hn::MulAdd(w[j], hn::Load(d, inputs_[p] + column + static_cast<std::int64_t>(j) * kLanes),
                       sums[r * kPairs + p][j % kSums]);
    }
  }

  FloatRow rows_[kRows];
  const float* inputs_[kPairs];
  std::int64_t k_;
};

/// All inputs against kRows rows from `row` on (within the tile): kPairs at a time, then half of that, …
template <class Source, std::size_t kRows, std::size_t kPairs>
HWY_INLINE void float_rows(const TileArgs& args, std::int64_t row, std::int64_t first_pair, const FloatRow* rows,
                           const Prefetcher& prefetcher) {
  const MatrixView& matrix = args.weights;
  constexpr std::int64_t kStep = kPairs;
  std::int64_t pair = first_pair;
  for (; pair + kStep <= args.pairs; pair += kStep) {
    float sums[kRows * kPairs];
    // Only the first pass reads from memory.
    FloatBlock<Source, kRows, kPairs>(rows, args.inputs + pair, matrix.k)
        .run(Source::segment(matrix), pair == 0 ? prefetcher : Prefetcher::none(), sums);
    float* out = args.out + pair * args.out_stride + row;
    for (std::size_t p = 0; p < kPairs; ++p, out += args.out_stride)
      for (std::size_t r = 0; r < kRows; ++r) out[r] = sums[r * kPairs + p];
  }
  if constexpr (kPairs > 1)
    if (pair < args.pairs) float_rows<Source, kRows, kPairs / 2>(args, row, pair, rows, prefetcher);
}

/// Rows from `row` on, kRows at a time; returns the first row that is left.
template <class Source, std::size_t kRows, std::size_t kPairs>
std::int64_t float_row_blocks(const TileArgs& args, std::int64_t row) {
  using Weights = typename Source::Weights;
  const MatrixView& matrix = args.weights;
  const std::int64_t row_bytes = matrix.k * Weights::kChunkBytes / kChunk;
  const std::byte* tile = matrix.data + args.first_row * row_bytes;
  constexpr std::int64_t kStep = kRows;
  for (; row + kStep <= args.rows; row += kStep) {
    FloatRow rows[kRows];
    std::int64_t at = args.first_row + row;
    std::byte* scratch = args.scratch;
    for (FloatRow& one : rows) {
      one = Source::row(matrix, at++, scratch);
      scratch += round_up(row_bytes, kCacheLine);
    }
    const Prefetcher prefetcher = Source::kDequantizesFirst
                                      ? Prefetcher::none()
                                      : Prefetcher(tile + row * row_bytes, tile + args.rows * row_bytes,
                                                   args.prefetch_bytes, args.next_tile, args.next_tile_bytes);
    float_rows<Source, kRows, kPairs>(args, row, 0, rows, prefetcher);
  }
  return row;
}

template <class Source, std::size_t kRows, std::size_t kPairs>
void float_tile(const TileKernel&, const TileArgs& args) {
  const std::int64_t rest = float_row_blocks<Source, kRows, kPairs>(args, 0);
  if constexpr (kRows > 1) float_row_blocks<Source, 1, kPairs>(args, rest);
}

template <class Source, std::size_t kRows>
auto float_tile_for(std::int64_t pairs) -> void (*)(const TileKernel&, const TileArgs&) {
  if constexpr (kRows <= 1)
    if (pairs >= 8) return float_tile<Source, kRows, 8>;
  if constexpr (kRows <= 2)
    if (pairs >= 4) return float_tile<Source, kRows, 4>;
  if (pairs >= 2) return float_tile<Source, kRows, 2>;
  return float_tile<Source, kRows, 1>;
}

/// The kernel for that source of weights.
template <class Source>
TileKernel float_decode_kernel(std::int64_t k, const DecodeShape& shape) {
  using Weights = typename Source::Weights;
  TileKernel kernel;
  kernel.input_bytes = arranged_floats(k) * static_cast<std::int64_t>(sizeof(float));
  kernel.arrange = arrange_floats<Weights>;
  if (shape.rows >= 4)
    kernel.run = float_tile_for<Source, 4>(shape.pairs);
  else if (shape.rows >= 2)
    kernel.run = float_tile_for<Source, 2>(shape.pairs);
  else
    kernel.run = float_tile_for<Source, 1>(shape.pairs);
  if (Source::kDequantizesFirst)
    kernel.scratch_bytes = 4 * round_up(k * static_cast<std::int64_t>(sizeof(float)), kCacheLine);
  return kernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#endif
