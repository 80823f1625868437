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

/// The function between the projections, in fp64, as ActivationKind writes it: of gate and up when `gated`, else of
/// `up` alone (`gate` is ignored), where the clamps and the +1 of the gated forms have nothing to act on: silu_clamped
/// is silu(min(u, limit)), swiglu_oai is u'·sigmoid(alpha·u') with u' = min(u, limit). situ: NaN.
[[nodiscard]] double activate(const Activation& activation, bool gated, double gate, double up);

/// Output [tokens, H] of the routed experts for input bf16 [tokens, H]: products and sums in fp64, weights dequantised
/// exactly, nothing rounded between the projections but to fp32. `only_tokens`: rows to compute (the others stay 0);
/// empty: all. A pair with id -1 adds nothing; an expert that is twice in one token adds twice. The result does not
/// depend on the number of threads. Errors: an activation that is recognised only, a layer, input or routing of other
/// sizes than the problem's, ids out of range, weights of the routing that are not finite.
[[nodiscard]] Result<std::vector<float>> reference_layer(const Problem& problem, const Layer& layer,
                                                         std::span<const std::uint16_t> input, const Routing& routing,
                                                         std::span<const std::int64_t> only_tokens = {});

/// A dense gated (`gate` is not null) or ungated MLP with the same activation: what a shared expert is. Input bf16
/// [tokens, up.k]; output [tokens, down.n]. Same arithmetic and errors as reference_layer.
[[nodiscard]] Result<std::vector<float>> reference_mlp(const Activation& activation, const MatrixView* gate,
                                                       const MatrixView& up, const MatrixView& down,
                                                       std::span<const std::uint16_t> input, std::int64_t tokens);

/// Verdict on a backend's output against the reference.
struct Comparison {
  bool finite = true;  ///< no NaN or infinity anywhere
  bool within =
      true;  ///< finite, relative_error <= tolerance and, from 16 columns on, worst_error <= kWorstFactor tolerances
  double relative_error = 0;  ///< Frobenius norm of the difference over that of the reference; infinite where only the
                              ///< reference is zero
  double worst_error = 0;     ///< largest |difference| of an element over the root mean square of its token's reference
  double tolerance = 0;  ///< what relative_error was held against: wider than layer_tolerance, twice at most, where few
                         ///< tokens carry the norm
  std::string worst;     ///< the element of worst_error: "token 3, column 17: 0.125, expected 0.25"
};

/// How far one element may stray, in tolerances of the layer. Rounding errors of an element are sums of many small
/// ones, so nearly normal with a spread of one tolerance, or 1.7 in an unlucky token: 10 is out of reach of chance,
/// while one wrong scale in one row of the down projection moves single elements by far more and hardly shows in the
/// norm of all.
inline constexpr double kWorstFactor = 10.0;

/// Compares bf16 output [tokens, hidden] with the reference over the given rows (empty: all). `tolerance` from
/// layer_tolerance. Sizes that do not match: not within, and `worst` says so.
[[nodiscard]] Comparison compare_output(std::span<const std::uint16_t> output, std::span<const float> reference,
                                        std::int64_t hidden, double tolerance,
                                        std::span<const std::int64_t> only_tokens = {});

/// The relative error that bf16 rounding of input-side products, of the intermediate and of the output explains for
/// this layer; a correct backend stays below, derivation in compare.cpp.
[[nodiscard]] double layer_tolerance(const Problem& problem);

/// bf16 activations of a benchmark, standard normal, from a seed: [tokens, hidden].
[[nodiscard]] std::vector<std::uint16_t> random_input(std::int64_t tokens, std::int64_t hidden, std::uint64_t seed);

}  // namespace moetune
