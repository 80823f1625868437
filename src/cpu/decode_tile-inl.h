// The loops around the decode form: a tile of rows, a few side by side, against all inputs, a few at a time. A Source
// says where a row's weights and scales are (Rows, which goes from row to row without dividing) and has a Block<kRows,
// kPairs> that computes kRows × kPairs dot products.
#if defined(MOETUNE_CPU_DECODE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MOETUNE_CPU_DECODE_TILE_INL_H_
#undef MOETUNE_CPU_DECODE_TILE_INL_H_
#else
#define MOETUNE_CPU_DECODE_TILE_INL_H_
#endif

#include "cpu/simd_ops-inl.h"
#include "cpu/tile_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

inline constexpr std::int64_t kMaxTileRows = 4;

/// Source::Rows of sources for which finding a row is cheap or does not matter: asks for each.
template <class Source>
class RowByRow {
 public:
  RowByRow(const MatrixView& matrix, std::int64_t row) : matrix_(matrix), row_(row) {}
  /// The next row.
  HWY_INLINE typename Source::Row take(std::byte* scratch) { return Source::row(matrix_, row_++, scratch); }

 private:
  const MatrixView& matrix_;
  std::int64_t row_;
};

/// All inputs from `first_pair` on against the kRows rows at `row` of the tile: kPairs at a time, then half of that, …
template <class Source, std::size_t kRows, std::size_t kPairs>
HWY_INLINE void decode_rows(const TileArgs& args, std::int64_t row, std::int64_t first_pair,
                            const typename Source::Row* rows, const Prefetcher& prefetcher) {
  constexpr std::int64_t kStep = kPairs;
  std::int64_t pair = first_pair;
  for (; pair + kStep <= args.pairs; pair += kStep) {
    float sums[kRows * kPairs];
    // Only the first pass reads from memory.
    typename Source::template Block<kRows, kPairs>(rows, args.inputs + pair, args.weights)
        .run(pair == 0 ? prefetcher : Prefetcher::none(), sums);
    float* out = args.out + pair * args.out_stride + row;
    for (std::size_t p = 0; p < kPairs; ++p, out += args.out_stride)
      for (std::size_t r = 0; r < kRows; ++r) out[r] = sums[r * kPairs + p];
  }
  if constexpr (kPairs > 1)
    if (pair < args.pairs) decode_rows<Source, kRows, kPairs / 2>(args, row, pair, rows, prefetcher);
}

/// Rows from `row` on, kRows at a time; returns the first row that is left.
template <class Source, std::size_t kRows, std::size_t kPairs>
std::int64_t decode_row_blocks(const TileArgs& args, std::int64_t row) {
  const MatrixView& matrix = args.weights;
  const std::int64_t row_bytes = Source::row_bytes(matrix);
  const std::byte* tile = matrix.data + args.first_row * row_bytes;
  constexpr std::int64_t kStep = kRows;
  typename Source::Rows all(matrix, args.first_row + row);
  for (; row + kStep <= args.rows; row += kStep) {
    typename Source::Row rows[kRows];
    std::byte* scratch = args.scratch;
    for (auto& one : rows) {
      one = all.take(scratch);
      scratch += round_up(row_bytes, kCacheLine);
    }
    const Prefetcher prefetcher = Source::kDequantizesFirst
                                      ? Prefetcher::none()
                                      : Prefetcher(tile + row * row_bytes, tile + args.rows * row_bytes,
                                                   args.prefetch_bytes, args.next_tile, args.next_tile_bytes);
    decode_rows<Source, kRows, kPairs>(args, row, 0, rows, prefetcher);
  }
  return row;
}

template <class Source, std::size_t kRows, std::size_t kPairs>
void decode_tile(const TileKernel&, const TileArgs& args) {
  const std::int64_t rest = decode_row_blocks<Source, kRows, kPairs>(args, 0);
  if constexpr (kRows > 1) decode_row_blocks<Source, 1, kPairs>(args, rest);
}

template <class Source, std::size_t kRows>
auto decode_tile_of(std::int64_t pairs) -> void (*)(const TileKernel&, const TileArgs&) {
  if constexpr (kRows <= 1)
    if (pairs >= 8) return decode_tile<Source, kRows, 8>;
  if constexpr (kRows <= 2)
    if (pairs >= 4) return decode_tile<Source, kRows, 4>;
  if (pairs >= 2) return decode_tile<Source, kRows, 2>;
  return decode_tile<Source, kRows, 1>;
}

/// The instantiation for a shape.
template <class Source>
auto decode_tile_for(const DecodeShape& shape) -> void (*)(const TileKernel&, const TileArgs&) {
  if (shape.rows >= kMaxTileRows) return decode_tile_of<Source, kMaxTileRows>(shape.pairs);
  if (shape.rows >= 2) return decode_tile_of<Source, 2>(shape.pairs);
  return decode_tile_of<Source, 1>(shape.pairs);
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#endif
