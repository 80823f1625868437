// What happens to rows of numbers between the projections, vectorised.
#pragma once

#include <cstdint>

#include "model/geometry.h"

namespace moetune {

/// Gate and up projections of some rows for one pair, without factor and bias. Pointers to biases may be null.
struct ProjectedRow {
  const float* gate = nullptr;  ///< null: not gated
  const float* up = nullptr;
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  float factor = 1.0F;  ///< multiplies the projections before the bias: a routing weight on the input
};

/// Row operations for the best instruction set of this machine. Inputs and outputs need no alignment and do not
/// overlap, except that `sum` is updated in place.
struct RowMath {
  /// out = activation(factor · gate + gate_bias, factor · up + up_bias), as ActivationKind writes it, within a few
  /// units in the last place of fp32 of the larger values. `situ` is not computed: out is NaN.
  void (*activate)(const Activation& activation, const ProjectedRow& row, std::int64_t count, float* out) = nullptr;
  /// sum += weight · (x + bias); bias may be null.
  void (*accumulate)(const float* x, const float* bias, float weight, std::int64_t count, float* sum) = nullptr;
  void (*from_bf16)(const std::uint16_t* x, std::int64_t count, float* out) = nullptr;
  /// Rounds to nearest, ties to even.
  void (*to_bf16)(const float* x, std::int64_t count, std::uint16_t* out) = nullptr;
};
[[nodiscard]] RowMath row_math();

}  // namespace moetune
