// Rows of stored weights to rows of a panel: floats, or bf16 where the processor multiplies those, in the order of
// weights-inl.h, scales applied (but for the power of two that the inputs carry).
#if defined(MOETUNE_CPU_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MOETUNE_CPU_PANEL_INL_H_
#undef MOETUNE_CPU_PANEL_INL_H_
#else
#define MOETUNE_CPU_PANEL_INL_H_
#endif

#include <algorithm>
#include <array>
#include <vector>

#include "cpu/weights-inl.h"
#include "formats/dequantize.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

/// Four vectors of a chunk, of which only the first `columns` weights exist where kPartial.
template <class Weights, bool kPartial>
HWY_INLINE void load_chunk(const std::byte* data, std::int64_t columns, Floats (&w)[4]) {
  if constexpr (kPartial) {
    std::byte padded[static_cast<std::size_t>(Weights::kChunkBytes)] = {};
    std::memcpy(padded, data, static_cast<std::size_t>(columns * Weights::kChunkBytes / kChunk));
    Weights::load(padded, w);
  } else {
    Weights::load(data, w);
  }
}

/// Where a chunk goes in a panel.
HWY_INLINE void store_chunk(const Floats (&w)[4], float* out) {
  MOETUNE_UNROLL
  for (std::size_t j = 0; j < 4; ++j) hn::Store(w[j], FloatTag(), out + static_cast<std::int64_t>(j) * kLanes);
}
#if HWY_TARGET == HWY_AVX3_DL
HWY_INLINE void store_chunk(const Floats (&w)[4], std::uint16_t* out) {
  const hn::Repartition<std::uint16_t, FloatTag> halves;
  hn::Store(hn::BitCast(halves, round_to_bf16(w[0], w[1])), halves, out);
  hn::Store(hn::BitCast(halves, round_to_bf16(w[2], w[3])), halves, out + 2 * kLanes);
}
#endif

/// Chunks [first, first + columns) of a row: load(chunk's first column, columns that exist, w), then store.
/// `Load` is an object with a template operator for whole and partial chunks.
template <class Load, class Element>
HWY_INLINE void fill_chunks(std::int64_t first, std::int64_t columns, const Load& load, Element* out) {
  Floats w[4];
  std::int64_t column = 0;
  for (; column + kChunk <= columns; column += kChunk) {
    load.template run<false>(first + column, kChunk, w);
    store_chunk(w, out + column);
  }
  if (column == columns) return;
  load.template run<true>(first + column, columns - column, w);
  store_chunk(w, out + column);
}

/// 16-bit floats, which have no scale.
template <class WeightsType>
struct PlainPanel {
  using Weights = WeightsType;
  static constexpr bool kWholeRows = false;

  static std::int64_t row_bytes(const MatrixView&, std::int64_t k) { return k * Weights::kChunkBytes / kChunk; }

  struct Load {
    const std::byte* row;
    template <bool kPartial>
    HWY_INLINE void run(std::int64_t column, std::int64_t columns, Floats (&w)[4]) const {
      load_chunk<Weights, kPartial>(row + column * Weights::kChunkBytes / kChunk, columns, w);
    }
  };
  template <class Element>
  static void fill(const MatrixView& matrix, std::int64_t row, std::int64_t first, std::int64_t columns, Element* out) {
    fill_chunks(first, columns, Load{matrix.data + row * row_bytes(matrix, matrix.k)}, out);
  }
};

/// E4M3 with a float per row, block or matrix, or a power of two per 32 columns. A scale covers whole chunks, or half a
/// chunk of 64.
struct Fp8Panel {
  using Weights = Fp8Weights;
  static constexpr bool kWholeRows = false;

  static std::int64_t row_bytes(const MatrixView&, std::int64_t k) { return k; }

  struct Load {
    const std::byte* row;
    const std::byte* scales;
    std::uint32_t segment;
    HWY_INLINE float scale(std::int64_t column) const {
      return load_element<float>(scales, static_cast<std::uint32_t>(column) / segment) * Weights::kResultScale;
    }
    template <bool kPartial>
    HWY_INLINE void run(std::int64_t column, std::int64_t columns, Floats (&w)[4]) const {
      load_chunk<Weights, kPartial>(row + column, columns, w);
      const Floats factor = hn::Set(FloatTag(), scale(column));
      MOETUNE_UNROLL
      for (std::size_t j = 0; j < 4; ++j) w[j] = hn::Mul(w[j], factor);
    }
  };
  template <class Element>
  static void fill(const MatrixView& matrix, std::int64_t row, std::int64_t first, std::int64_t columns, Element* out) {
    constexpr std::int64_t kFloat = sizeof(float);
    const std::byte* scales = matrix.scales;
    std::int64_t segment = matrix.k;
    if (matrix.spec.format == WeightFormat::fp8_channel) scales += row * kFloat;
    if (matrix.spec.format == WeightFormat::fp8_block) {
      segment = std::min(matrix.spec.block_k, matrix.k);
      scales += row / matrix.spec.block_n * ceil_div(matrix.k, matrix.spec.block_k) * kFloat;
    }
    fill_chunks(first, columns, Load{matrix.data + row * matrix.k, scales, static_cast<std::uint32_t>(segment)}, out);
  }
};

struct Mxfp8Panel {
  using Weights = Fp8Weights;
  static constexpr bool kWholeRows = false;

  static std::int64_t row_bytes(const MatrixView&, std::int64_t k) { return k; }

  struct Load {
    const std::byte* row;
    const std::byte* scales;
    template <bool kPartial>
    HWY_INLINE void run(std::int64_t column, std::int64_t columns, Floats (&w)[4]) const {
      load_chunk<Weights, kPartial>(row + column, columns, w);
      scale_mx_chunk(scales, column, columns, Weights::kResultScale, w);
    }
  };
  template <class Element>
  static void fill(const MatrixView& matrix, std::int64_t row, std::int64_t first, std::int64_t columns, Element* out) {
    const Load load{matrix.data + row * matrix.k, matrix.scales + row * ceil_div(matrix.k, 32)};
    fill_chunks(first, columns, load, out);
  }
};

#if HWY_CAP_GE256
/// Four-bit codes: bytes are looked up, widened and scaled. Groups are whole halves of a chunk, or of 16.
template <WeightFormat kFormat>
struct NibblePanel {
  static constexpr bool kWholeRows = false;
  struct Weights {
    static constexpr std::int64_t kStride = 2;
    static constexpr std::int64_t kChunkBytes = kChunk / 2;
    static constexpr float kInputScale = 1.0F;
    /// Codes as floats: twice the values of E2M1, or nibbles.
    static HWY_INLINE void load(const std::byte* data, Floats (&w)[4]) {
      const hn::Half<hn::Repartition<std::uint8_t, FloatTag>> bytes;
      const hn::Half<hn::Repartition<std::uint16_t, FloatTag>> halves;
      const auto pairs = hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(data));
      const auto low = hn::Set(bytes, std::uint8_t{15});
      const auto even = hn::And(pairs, low);
      const auto odd = hn::And(hn::BitCast(bytes, hn::ShiftRight<4>(hn::BitCast(halves, pairs))), low);
      widen(look_up(even), w[0], w[2]);
      widen(look_up(odd), w[1], w[3]);
    }

   private:
    template <class V>
    static HWY_INLINE V look_up(V codes) {
      if constexpr (kFormat == WeightFormat::int4) return codes;
      const hn::Half<hn::Repartition<std::uint8_t, FloatTag>> bytes;
      alignas(16) static constexpr std::int8_t kValues[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
      const auto table = hn::LoadDup128(bytes, reinterpret_cast<const std::uint8_t*>(kValues));
      return hn::TableLookupBytes(table, codes);
    }
    template <class V>
    static HWY_INLINE void widen(V bytes, Floats& first, Floats& second) {
      const hn::Half<hn::Repartition<std::int8_t, FloatTag>> all;
      const hn::Rebind<std::int8_t, FloatTag> quarter;
      const hn::Repartition<std::int32_t, FloatTag> words;
      const auto values = hn::BitCast(all, bytes);
      first = hn::ConvertTo(FloatTag(), hn::PromoteTo(words, hn::LowerHalf(quarter, values)));
      second = hn::ConvertTo(FloatTag(), hn::PromoteTo(words, hn::UpperHalf(quarter, values)));
    }
  };

  static std::int64_t row_bytes(const MatrixView&, std::int64_t k) { return k / 2; }

  struct Load {
    const std::byte* row;
    const std::byte* scales;
    const std::byte* zeros;
    float factor;
    std::uint32_t group, last_group;

    HWY_INLINE std::uint32_t group_of(std::int64_t column) const {
      return std::min(static_cast<std::uint32_t>(column) / group, last_group);
    }
    HWY_INLINE float scale(std::uint32_t index) const {
      if constexpr (kFormat == WeightFormat::nvfp4)
        return e4m3_to_float(load_element<std::uint8_t>(scales, index)) * factor;
      if constexpr (kFormat == WeightFormat::mxfp4)
        return e8m0_to_float(load_element<std::uint8_t>(scales, index)) * factor;
      return load_element<float>(scales, index);
    }
    /// Scale of 2·kLanes weights from `column` on.
    HWY_INLINE Floats half_scale(std::int64_t column) const {
      const FloatTag d;
      const Floats first = hn::Set(d, scale(group_of(column)));
#if HWY_CAP_GE512
      if constexpr (kFormat == WeightFormat::nvfp4)
        return hn::ConcatLowerLower(d, hn::Set(d, scale(group_of(column + 16))), first);
#endif
      return first;
    }
    template <bool kPartial>
    HWY_INLINE void run(std::int64_t column, std::int64_t columns, Floats (&w)[4]) const {
      load_chunk<Weights, kPartial>(row + column / 2, columns, w);
      MOETUNE_UNROLL
      for (std::size_t half = 0; half < 2; ++half) {
        const std::int64_t first = column + static_cast<std::int64_t>(half) * 2 * kLanes;
        const Floats factors = half_scale(first);
        Floats zero = hn::Zero(FloatTag());
        if constexpr (kFormat == WeightFormat::int4)
          zero =
              hn::Set(FloatTag(),
                      zeros == nullptr ? 8.0F : static_cast<float>(load_element<std::uint8_t>(zeros, group_of(first))));
        MOETUNE_UNROLL
        for (std::size_t j = 2 * half; j < 2 * half + 2; ++j) w[j] = hn::Mul(hn::Sub(w[j], zero), factors);
      }
    }
  };
  template <class Element>
  static void fill(const MatrixView& matrix, std::int64_t row, std::int64_t first, std::int64_t columns, Element* out) {
    const std::int64_t groups = ceil_div(matrix.k, matrix.spec.block_k);
    const std::int64_t bytes = kFormat == WeightFormat::int4 ? 4 : 1;
    Load load{matrix.data + row * (matrix.k / 2),
              matrix.scales + row * groups * bytes,
              nullptr,
              0.5F,
              static_cast<std::uint32_t>(matrix.spec.block_k),
              static_cast<std::uint32_t>(groups - 1)};
    if (kFormat == WeightFormat::nvfp4) load.factor *= matrix.global_scale;
    if (matrix.spec.zero_point) load.zeros = matrix.zeros + row * groups;
    fill_chunks(first, columns, load, out);
  }
};
#endif

/// Any format and shape, value by value.
struct DequantizedPanel {
  using Weights = FloatWeights;
  static constexpr bool kWholeRows = true;

  static std::int64_t row_bytes(const MatrixView& matrix, std::int64_t k) {
    return matrix_bytes(matrix.spec, 1, k + (k & 1)).data;
  }
  static void fill(const MatrixView& matrix, std::int64_t row, std::int64_t, std::int64_t columns, float* out) {
    dequantize_row(matrix, row, {out, static_cast<std::size_t>(columns)});
    std::fill(out + columns, out + round_up(columns, kChunk), 0.0F);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#endif
