// One expert's projection in a checkpoint: which tensors make it up in each number format, cut to what one device
// holds.
#pragma once

#include <cstdint>
#include <optional>

#include "base/error.h"
#include "formats/spec.h"
#include "model/expert_tensors.h"
#include "model/layer.h"

namespace moetune {

/// What a device holds of a projection's N × K matrix: rows of gate and up, columns of down.
struct MatrixPart {
  std::int64_t all_rows = 0, all_columns = 0;  ///< N and K of the whole model
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

/// Four-bit integers packed eight to a 32-bit word, each word holding neighbours along one side of the matrix.
///   rows: word (k, n / 8) (AWQ, and zero points); columns: word (k / 8, n) (GPTQ)
/// k counts columns or groups of them, n rows of the projection; the first is the tensor's first dimension.
struct PackedNibbles {
  enum class Along { rows, columns };
  Grid words;
  Along along = Along::rows;
  bool awq_order = false;  ///< neighbours 0 2 4 6 1 3 5 7 from the lowest nibble up, instead of 0 1 2 3 4 5 6 7
  std::uint8_t add = 0;    ///< to what is stored: 1 for the zero points of GPTQ's first format

  [[nodiscard]] std::uint8_t at(std::int64_t row, std::int64_t column) const;
};

/// Tensors of one projection of one expert. Grids are cut to the part, packed nibbles are not.
struct ExpertSource {
  MatrixPart part;
  Grid data;                             ///< elements, or bytes of two elements
  std::optional<Grid> scales;            ///< one for each block
  std::optional<Grid> bias;              ///< rows × 1
  std::optional<PackedNibbles> nibbles;  ///< int4 in place of data
  std::optional<PackedNibbles> zeros;    ///< int4; compared with 8 where the spec has no zero points
  float global_scale = 1.0F;             ///< nvfp4, as a multiplier
};

/// Finds the tensors and checks their element types and shapes; touches none of their bytes but global scales.
///
///   bf16, fp16   weight, or nothing (fused)
///   fp8_*        weight F8_E4M3;  weight_scale_inv, weight_scale or scale: F32, BF16, F16 or F8_E8M0, a multiplier
///   mxfp8        weight F8_E4M3;  weight_scale, weight_scale_inv or scale: U8 or F8_E8M0
///   mxfp4        weight_packed, weight or _blocks: U8 or I8;  weight_scale, scale or _scales: U8 or F8_E8M0
///   nvfp4        weight (modelopt) with weight_scale F8_E4M3 and weight_scale_2 F32, a multiplier; or weight_packed
///                (compressed-tensors) with weight_scale and weight_global_scale F32, whose reciprocal multiplies
///   int4         weight_packed I32 [N, K/8] with weight_scale [N, K/g], weight_zero_point I32 [N/8, K/g]
///                (compressed-tensors); qweight I32 [K/8, N] (GPTQ) or [K, N/8] (AWQ) with scales [K/g, N] and qzeros
///                I32 [K/g, N/8]. Where groups are of scattered columns (g_idx): an error.
///
/// Errors name the tensor, what it is and what it should be; also where the part cuts through a block of a scale.
[[nodiscard]] Result<ExpertSource> find_expert(const ExpertTensors& tensors, const WeightSpec& spec, bool bias,
                                               Projection projection, std::int64_t expert, const MatrixPart& part,
                                               bool gptq_v2);

/// Reads it into the stack's place for local expert `expert`, and checks what is there: scales and elements are finite.
/// Floating-point weights of another width than the spec's are converted where every value survives.
[[nodiscard]] Status read_expert(const ExpertSource& source, ExpertStack& stack, std::int64_t expert);

}  // namespace moetune
