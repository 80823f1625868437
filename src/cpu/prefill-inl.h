// The prefill form: a panel of weights (some rows by some columns) is dequantised once into floats or bf16 that stay in
// the second-level cache, then used for all inputs of the expert, a few rows by a few inputs at a time in registers.
#if defined(MOETUNE_CPU_PREFILL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MOETUNE_CPU_PREFILL_INL_H_
#undef MOETUNE_CPU_PREFILL_INL_H_
#else
#define MOETUNE_CPU_PREFILL_INL_H_
#endif

#include <algorithm>

#include "cpu/panel-inl.h"
#include "cpu/tile_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

/// Sums in registers: 12 of 16, or 24 of 32.
inline constexpr std::size_t kRegisterSums = HWY_CAP_GE512 ? 24 : 12;

/// One vector of panel elements times one of inputs, added to sums of floats.
HWY_INLINE Floats multiply_panel(const float* w, const float* x, Floats sum) {
  return hn::MulAdd(hn::Load(FloatTag(), w), hn::Load(FloatTag(), x), sum);
}
#if HWY_TARGET == HWY_AVX3_DL
HWY_INLINE Floats multiply_panel(const std::uint16_t* w, const std::uint16_t* x, Floats sum) {
  const hn::Repartition<std::uint32_t, FloatTag> pairs;
  const auto load = [pairs](const std::uint16_t* from)
                        HWY_ATTR { return hn::Load(pairs, reinterpret_cast<const std::uint32_t*>(from)); };
  return dot_bf16_pairs(sum, load(w), load(x));
}
#endif

/// kRows rows of a panel times kInputs inputs over `columns`, whole chunks: sums[input · kRows + row].
template <std::size_t kRows, std::size_t kInputs, class Element>
HWY_NOINLINE void panel_dots(const Element* panel, std::int64_t row_stride, const Element* const* inputs,
                             std::int64_t columns, float* sums) {
  constexpr std::int64_t kStep = kLanes * static_cast<std::int64_t>(sizeof(float) / sizeof(Element));
  Floats totals[kInputs * kRows];
  MOETUNE_UNROLL
  for (std::size_t i = 0; i < kInputs * kRows; ++i) totals[i] = hn::Zero(FloatTag());
  const Element* rows[kRows];
  const Element* x[kInputs];
  MOETUNE_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) rows[r] = panel + static_cast<std::int64_t>(r) * row_stride;
  MOETUNE_UNROLL
  for (std::size_t p = 0; p < kInputs; ++p) x[p] = inputs[p];
  for (std::int64_t column = 0; column < columns; column += kStep) {
    MOETUNE_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) MOETUNE_UNROLL
    for (std::size_t p = 0; p < kInputs; ++p)
      totals[p * kRows + r] = multiply_panel(rows[r] + column, x[p] + column, totals[p * kRows + r]);
  }
  float results[kInputs * kRows];
  sum_lanes(totals, results);
  std::copy(results, results + kInputs * kRows, sums);
}

/// Asks, a few lines at a time, for the stored weights of a panel that will be dequantised next.
class PanelPrefetcher {
 public:
  PanelPrefetcher(const std::byte* first, std::int64_t rows, std::int64_t row_stride, std::int64_t row_bytes,
                  std::int64_t calls)
      : row_(first), rows_(first != nullptr ? rows : 0), row_stride_(row_stride), row_bytes_(row_bytes) {
    const std::int64_t lines = rows_ * ceil_div(row_bytes, kCacheLine);
    lines_per_call_ = ceil_div(lines, std::max<std::int64_t>(calls, 1));
  }

  HWY_INLINE void advance() {
    for (std::int64_t line = 0; line < lines_per_call_ && rows_ > 0; ++line) {
      __builtin_prefetch(row_ + at_, 0, 2);  // into the second-level cache
      at_ += kCacheLine;
      if (at_ < row_bytes_) continue;
      at_ = 0;
      row_ += row_stride_;
      --rows_;
    }
  }

 private:
  const std::byte* row_;
  std::int64_t rows_, row_stride_, row_bytes_, lines_per_call_ = 0, at_ = 0;
};

/// One panel: columns [first, first + columns) of all rows of the tile, `stride` elements a row.
template <class Element>
struct Panel {
  const Element* data = nullptr;
  std::int64_t first = 0, columns = 0, stride = 0;
};

/// Adds the products of the rows at `row` with inputs from `pair` on, kInputs at a time, then the rest.
template <std::size_t kRows, std::size_t kInputs, class Element>
HWY_INLINE void add_panel_rows(const TileArgs& args, const Panel<Element>& panel, std::int64_t row, std::int64_t pair,
                               PanelPrefetcher& prefetcher) {
  constexpr std::int64_t kStep = kInputs;
  const std::int64_t rows = std::min<std::int64_t>(kRows, args.rows - row);
  for (; pair + kStep <= args.pairs; pair += kStep) {
    const Element* inputs[kInputs];
    for (std::size_t p = 0; p < kInputs; ++p)
      inputs[p] = reinterpret_cast<const Element*>(args.inputs[pair + static_cast<std::int64_t>(p)]) + panel.first;
    float sums[kInputs * kRows];
    prefetcher.advance();
    panel_dots<kRows, kInputs>(panel.data + row * panel.stride, panel.stride, inputs, panel.columns, sums);
    float* out = args.out + pair * args.out_stride + row;
    for (const float* sum = sums; sum != sums + kInputs * kRows; sum += kRows, out += args.out_stride)
      for (std::int64_t r = 0; r < rows; ++r) out[r] = panel.first == 0 ? sum[r] : out[r] + sum[r];
  }
  if constexpr (kInputs > 1)
    if (pair < args.pairs) add_panel_rows<kRows, kInputs - 1>(args, panel, row, pair, prefetcher);
}

/// The weights to ask for while the panel at `first` is used: the tile's next columns, or the next tile's first.
template <class Source>
PanelPrefetcher next_panel(const TileArgs& args, std::int64_t first, std::int64_t k_chunk, std::int64_t calls) {
  const MatrixView& matrix = args.weights;
  const std::int64_t row_bytes = Source::row_bytes(matrix, matrix.k);
  const std::int64_t next = first + k_chunk;
  if (args.prefetch_bytes <= 0) return {nullptr, 0, 0, 0, 0};
  if (next < matrix.k)
    return {matrix.data + args.first_row * row_bytes + Source::row_bytes(matrix, next), args.rows, row_bytes,
            Source::row_bytes(matrix, std::min(k_chunk, matrix.k - next)), calls};
  const std::int64_t rows = std::min(args.rows, args.next_tile_bytes / row_bytes);
  return {args.next_tile, rows, row_bytes, Source::row_bytes(matrix, std::min(k_chunk, matrix.k)), calls};
}

/// Inputs in the order and type of the panels.
template <class Weights, class Element>
void arrange_panel_inputs(const float* input, std::int64_t k, std::byte* out) {
  if constexpr (sizeof(Element) == sizeof(float)) {
    arrange_floats<Weights>(input, k, out);
  } else {
    auto* elements = reinterpret_cast<Element*>(out);
    for (std::int64_t first = 0; first < k; first += kChunk) {
      alignas(64) float chunk[static_cast<std::size_t>(kChunk)];
      arrange_floats<Weights>(input + first, std::min(kChunk, k - first), reinterpret_cast<std::byte*>(chunk));
      Floats x[4];
      for (std::size_t j = 0; j < 4; ++j) x[j] = hn::Load(FloatTag(), chunk + static_cast<std::int64_t>(j) * kLanes);
      store_chunk(x, elements + first);
    }
  }
}

/// Elements of a panel row of whole chunks: an odd number of cache lines, so that rows do not meet in the same sets.
template <class Element>
constexpr std::int64_t panel_stride(std::int64_t columns) {
  constexpr std::int64_t kLine = kCacheLine / static_cast<std::int64_t>(sizeof(Element));
  return round_up(round_up(columns, kChunk), 2 * kLine) + kLine;
}

template <class Source, class Element, std::size_t kInputs>
void prefill_tile(const TileKernel& kernel, const TileArgs& args) {
  constexpr std::int64_t kRows = kRegisterSums / kInputs;
  const MatrixView& matrix = args.weights;
  auto* data = reinterpret_cast<Element*>(args.scratch);
  for (std::int64_t first = 0; first < matrix.k; first += kernel.k_chunk) {
    const std::int64_t columns = std::min(kernel.k_chunk, matrix.k - first);
    const Panel<Element> panel{data, first, round_up(columns, kChunk), panel_stride<Element>(columns)};
    for (std::int64_t row = 0; row < args.rows; ++row)
      Source::fill(matrix, args.first_row + row, first, columns, data + row * panel.stride);
    const std::int64_t blocks = ceil_div(args.rows, kRows) * ceil_div(args.pairs, std::int64_t{kInputs});
    PanelPrefetcher prefetcher = next_panel<Source>(args, first, kernel.k_chunk, blocks);
    for (std::int64_t row = 0; row < args.rows; row += kRows)
      add_panel_rows<static_cast<std::size_t>(kRows), kInputs>(args, panel, row, 0, prefetcher);
  }
}

template <class Source, class Element>
TileKernel prefill_kernel_for(std::int64_t k, const PrefillShape& shape) {
  constexpr std::int64_t kSize = sizeof(Element);
  TileKernel kernel;
  kernel.input_bytes = round_up(arranged_floats(k) * kSize, kCacheLine);
  kernel.arrange = arrange_panel_inputs<typename Source::Weights, Element>;
  kernel.k_chunk = Source::kWholeRows ? round_up(k, kChunk) : round_up(std::min(shape.k_chunk, k), kChunk);
  // A tile's rows, and as many again as a register block may read beyond them.
  const std::int64_t rows = shape.rows + static_cast<std::int64_t>(kRegisterSums);
  kernel.scratch_bytes = rows * panel_stride<Element>(kernel.k_chunk) * kSize;
  kernel.run = shape.inputs >= 4   ? prefill_tile<Source, Element, 4>
               : shape.inputs == 3 ? prefill_tile<Source, Element, 3>
                                   : prefill_tile<Source, Element, 2>;
  return kernel;
}

/// Whether a scale covers whole runs of `weights`.
inline bool scale_covers(const WeightSpec& spec, std::int64_t k, std::int64_t weights) {
  return spec.block_k >= k || spec.block_k % weights == 0;
}

/// The kernel for a format, with panels of `Element`.
template <class Element>
TileKernel prefill_kernel_of(const WeightSpec& spec, std::int64_t k, const PrefillShape& shape) {
  switch (spec.format) {
    case WeightFormat::bf16:
      return prefill_kernel_for<PlainPanel<Bf16Weights>, Element>(k, shape);
    case WeightFormat::fp16:
      return prefill_kernel_for<PlainPanel<Fp16Weights>, Element>(k, shape);
    case WeightFormat::fp8_block:
      if (!scale_covers(spec, k, kChunk)) break;
      [[fallthrough]];
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
      return prefill_kernel_for<Fp8Panel, Element>(k, shape);
    case WeightFormat::mxfp8:
      return prefill_kernel_for<Mxfp8Panel, Element>(k, shape);
#if HWY_CAP_GE256
    case WeightFormat::nvfp4:
      return prefill_kernel_for<NibblePanel<WeightFormat::nvfp4>, Element>(k, shape);
    case WeightFormat::mxfp4:
      return prefill_kernel_for<NibblePanel<WeightFormat::mxfp4>, Element>(k, shape);
    case WeightFormat::int4:
      if (scale_covers(spec, k, 2 * kLanes))
        return prefill_kernel_for<NibblePanel<WeightFormat::int4>, Element>(k, shape);
      break;
#endif
    default:
      break;
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#endif
