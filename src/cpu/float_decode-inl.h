// The decode form for formats that become floats in registers: dot products along K, each weight decoded once for up to
// eight inputs.
#if defined(MOETUNE_CPU_FLOAT_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MOETUNE_CPU_FLOAT_DECODE_INL_H_
#undef MOETUNE_CPU_FLOAT_DECODE_INL_H_
#else
#define MOETUNE_CPU_FLOAT_DECODE_INL_H_
#endif

#include <algorithm>

#include "cpu/decode_tile-inl.h"
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

template <class Source, std::size_t kRows, std::size_t kPairs>
class FloatBlock;

/// How a row's scales lie: a float per segment of columns, or none.
template <class WeightsType>
struct SegmentScaled {
  using Weights = WeightsType;
  static constexpr bool kDequantizesFirst = false;

  using Row = FloatRow;
  template <std::size_t kRows, std::size_t kPairs>
  using Block = FloatBlock<SegmentScaled, kRows, kPairs>;

  static std::int64_t row_bytes(const MatrixView& matrix) { return matrix.k * Weights::kChunkBytes / kChunk; }
  /// Columns that share a scale.
  static std::int64_t segment(const MatrixView& matrix) {
    return matrix.spec.format == WeightFormat::fp8_block ? matrix.spec.block_k : matrix.k;
  }
  class Rows {
   public:
    Rows(const MatrixView& matrix, std::int64_t row) : data_bytes_(row_bytes(matrix)) {
      next_.data = matrix.data + row * data_bytes_;
      constexpr std::int64_t kScale = sizeof(float);
      switch (matrix.spec.format) {
        case WeightFormat::fp8_tensor:
          next_.scales = matrix.scales;
          break;
        case WeightFormat::fp8_channel:
          next_.scales = matrix.scales + row * kScale;
          scale_bytes_ = kScale;
          block_rows_ = left_ = 1;
          break;
        case WeightFormat::fp8_block:
          scale_bytes_ = ceil_div(matrix.k, matrix.spec.block_k) * kScale;
          next_.scales = matrix.scales + row / matrix.spec.block_n * scale_bytes_;
          block_rows_ = matrix.spec.block_n;
          left_ = block_rows_ - row % block_rows_;
          break;
        default:
          break;
      }
    }
    HWY_INLINE FloatRow take(std::byte*) {
      const FloatRow row = next_;
      next_.data += data_bytes_;
      if (--left_ == 0) {
        next_.scales += scale_bytes_;
        left_ = block_rows_;
      }
      return row;
    }

   private:
    FloatRow next_;
    std::int64_t data_bytes_, scale_bytes_ = 0;
    std::int64_t block_rows_ = 0, left_ = 0;  ///< rows that share scales, and how many of them are left; 0: all do
  };
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
  using Row = FloatRow;
  template <std::size_t kRows, std::size_t kPairs>
  using Block = FloatBlock<MxScaled, kRows, kPairs>;
  using Rows = RowByRow<MxScaled>;

  static std::int64_t row_bytes(const MatrixView& matrix) { return matrix.k; }
  static std::int64_t segment(const MatrixView& matrix) { return matrix.k; }
  static FloatRow row(const MatrixView& matrix, std::int64_t row, std::byte*) {
    return {matrix.data + row * matrix.k, matrix.scales + row * ceil_div(matrix.k, kGroup)};
  }
  static HWY_INLINE float scale(const FloatRow&, std::int64_t) { return 1.0F; }

  /// The result scale goes in here: weights times 2^-120 and a small scale would leave the range of floats.
  static HWY_INLINE void scale_chunk(const FloatRow& row, std::int64_t column, std::int64_t k, Floats (&w)[4]) {
    scale_mx_chunk(row.scales, column, k - column, Weights::kResultScale, w);
  }
};

/// Any format and shape: rows are dequantised into scratch first, value by value.
struct DequantizedRows {
  using Weights = FloatWeights;
  static constexpr bool kDequantizesFirst = true;
  using Row = FloatRow;
  template <std::size_t kRows, std::size_t kPairs>
  using Block = FloatBlock<DequantizedRows, kRows, kPairs>;
  using Rows = RowByRow<DequantizedRows>;

  static std::int64_t row_bytes(const MatrixView& matrix) {
    return matrix.k * static_cast<std::int64_t>(sizeof(float));
  }
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

  FloatBlock(const FloatRow* rows, const std::byte* const* inputs, const MatrixView& matrix)
      : k_(matrix.k), segment_(Source::segment(matrix)) {
    MOETUNE_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) rows_[r] = rows[r];
    MOETUNE_UNROLL
    for (std::size_t p = 0; p < kPairs; ++p) inputs_[p] = reinterpret_cast<const float*>(inputs[p]);
  }

  HWY_NOINLINE void run(Prefetcher prefetcher, float (&sums)[kRows * kPairs]) {
    Floats totals[kRows * kPairs];
    MOETUNE_UNROLL
    for (std::size_t i = 0; i < kRows * kPairs; ++i) totals[i] = hn::Zero(FloatTag());
    for (std::int64_t first = 0, index = 0; first < k_; first += segment_, ++index)
      add_segment(first, std::min(segment_, k_ - first), index, prefetcher, totals);
    sum_lanes(totals, sums);
  }

 private:
  static constexpr std::size_t kAll = kRows * kPairs;
  /// Sums per row and input: with fewer than eight in all (two a cycle, four cycles each), FMA latency is the limit.
  static constexpr std::size_t kSums = kAll >= 8 ? 1 : kAll >= 2 ? 8 / kAll : 4;

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
  std::int64_t k_, segment_;
};

/// The kernel for that source of weights.
template <class Source>
TileKernel float_decode_kernel(std::int64_t k, const DecodeShape& shape) {
  TileKernel kernel;
  kernel.input_bytes = arranged_floats(k) * static_cast<std::int64_t>(sizeof(float));
  kernel.arrange = arrange_floats<typename Source::Weights>;
  kernel.run = decode_tile_for<Source>(shape);
  if (Source::kDequantizesFirst)
    kernel.scratch_bytes = kMaxTileRows * round_up(k * static_cast<std::int64_t>(sizeof(float)), kCacheLine);
  return kernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#endif
