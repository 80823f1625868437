// The function between an expert's two projections, in fp32.
#pragma once

#include "common/types.cuh"

namespace moetune {

enum class ActivationFunction { silu, gelu, gelu_tanh, relu2, silu_clamped, swiglu_oai };

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + __expf(-x)); }

/// f(gate)·up, or f(up) where the layer is not gated (then `gate` is the value and `up` is 1).
template <ActivationFunction kFunction>
__device__ __forceinline__ float activate(float gate, float up, float alpha, float limit) {
  if constexpr (kFunction == ActivationFunction::silu) {
    return gate * sigmoid(gate) * up;
  } else if constexpr (kFunction == ActivationFunction::gelu) {
    return 0.5F * gate * (1.0F + erff(gate * 0.70710678F)) * up;
  } else if constexpr (kFunction == ActivationFunction::gelu_tanh) {
    return 0.5F * gate * (1.0F + tanhf(0.79788456F * (gate + 0.044715F * gate * gate * gate))) * up;
  } else if constexpr (kFunction == ActivationFunction::relu2) {
    const float positive = fmaxf(gate, 0.0F);
    return positive * positive * up;
  } else {
    const float g = fminf(gate, limit);
    const float u = fminf(fmaxf(up, -limit), limit);
    if constexpr (kFunction == ActivationFunction::silu_clamped)
      return g * sigmoid(g) * u;
    else
      return g * sigmoid(alpha * g) * (u + 1.0F);
  }
}

}  // namespace moetune
