// The layer as the papers write it: slow, separate, obvious. Every kernel is judged by it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/layer.h"
#include "moe/routing.h"

namespace moetune {

/// Output [tokens, H] of the routed experts for input bf16 [tokens, H], in fp32 with fp64 sums, weights dequantised
/// exactly, nothing rounded between the projections. `only_tokens`: rows to compute (the others stay 0); empty: all.
[[nodiscard]] Result<std::vector<float>> reference_layer(const Problem& problem, const Layer& layer,
                                                         std::span<const std::uint16_t> input, const Routing& routing,
                                                         std::span<const std::int64_t> only_tokens = {});

/// A dense gated or ungated MLP with the same activation: what a shared expert is.
[[nodiscard]] Result<std::vector<float>> reference_mlp(const Activation& activation, const MatrixView* gate,
                                                       const MatrixView& up, const MatrixView& down,
                                                       std::span<const std::uint16_t> input, std::int64_t tokens);

/// Verdict on a backend's output against the reference.
struct Comparison {
  bool finite = true;         ///< no NaN or infinity anywhere
  bool within = true;         ///< relative_error <= tolerance
  double relative_error = 0;  ///< Frobenius norm of the difference over that of the reference
  double tolerance = 0;
  std::string worst;  ///< "token 3, column 17: 0.125, expected 0.25"
};
/// Compares bf16 output with the reference over the given rows (empty: all). `tolerance` from layer_tolerance.
[[nodiscard]] Comparison compare_output(std::span<const std::uint16_t> output, std::span<const float> reference,
                                        std::int64_t hidden, double tolerance,
                                        std::span<const std::int64_t> only_tokens = {});

/// The relative error that bf16 rounding of input-side products, of the intermediate and of the output explains for
/// this layer; a correct backend stays below, derivation in reference.cpp.
[[nodiscard]] double layer_tolerance(const Problem& problem);

/// bf16 activations of a benchmark, standard normal, from a seed: [tokens, hidden].
[[nodiscard]] std::vector<std::uint16_t> random_input(std::int64_t tokens, std::int64_t hidden, std::uint64_t seed);

}  // namespace moetune
