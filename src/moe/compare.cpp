#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "formats/convert.h"
#include "moe/random.h"
#include "moe/reference.h"

namespace moetune {
namespace {

/// Running totals over the rows compared.
struct Totals {
  double error = 0, norm = 0;   ///< squared
  double norm_squares = 0;      ///< sum of the squares of the rows' squared norms
  bool worst_is_final = false;  ///< an element that is not finite was met; nothing is worse
};

/// error / norm, with 0 / 0 = 0 and x / 0 = infinity.
double ratio(double error, double norm) {
  if (error == 0.0) return 0.0;
  return norm > 0.0 ? error / norm : std::numeric_limits<double>::infinity();
}

double root_mean_square(std::span<const float> row) {
  double sum = 0.0;
  for (const float value : row) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum / static_cast<double>(row.size()));
}

/// There is nothing to compare.
Comparison mismatch(Comparison comparison, std::string why) {
  comparison.within = false;
  comparison.relative_error = comparison.worst_error = std::numeric_limits<double>::infinity();
  comparison.worst = std::move(why);
  return comparison;
}

void compare_row(std::span<const std::uint16_t> output, std::span<const float> reference, std::int64_t token,
                 Totals& totals, Comparison& comparison) {
  const double scale = root_mean_square(reference);
  for (std::size_t column = 0; column < reference.size(); ++column) {
    const float got = bf16_to_float(output[column]);
    const double difference = static_cast<double>(got) - static_cast<double>(reference[column]);
    totals.error += difference * difference;
    const bool finite = std::isfinite(got);
    comparison.finite = comparison.finite && finite;
    const double element = finite ? ratio(std::abs(difference), scale) : std::numeric_limits<double>::infinity();
    // Written so that a NaN, which a reference that is not finite gives, counts as worse.
    if (totals.worst_is_final || element <= comparison.worst_error) continue;
    comparison.worst_error = element;
    totals.worst_is_final = !std::isfinite(element);
    comparison.worst = fmt::format("token {}, column {}: {}, expected {}", token, column, got, reference[column]);
  }
  const double norm = scale * scale * static_cast<double>(reference.size());
  totals.norm += norm;
  totals.norm_squares += norm * norm;
}

/// A tolerance is a mean over many tokens. In one token the few largest values of the intermediate decide, and their
/// roundings are no better than chance: up to twice the mean for one, less by the root of the number of tokens that
/// carry the norm, (Σ n)² / Σ n² of their squared norms n.
double tolerance_for(const Totals& totals, double tolerance) {
  return totals.norm > 0.0 ? tolerance * (1.0 + std::sqrt(totals.norm_squares) / totals.norm) : tolerance;
}

/// With fewer columns a row says too little about the size of what was summed: experts may cancel in it, and a single
/// element may then be far from its row's root mean square without a fault.
constexpr std::int64_t kTellingColumns = 16;

}  // namespace

Comparison compare_output(std::span<const std::uint16_t> output, std::span<const float> reference, std::int64_t hidden,
                          double tolerance, std::span<const std::int64_t> only_tokens) {
  Comparison comparison;
  comparison.tolerance = tolerance;
  const std::int64_t tokens = hidden > 0 ? std::ssize(reference) / hidden : 0;
  const auto outside = [tokens](std::int64_t token) { return token < 0 || token >= tokens; };
  if (output.size() != reference.size() || tokens * hidden != std::ssize(reference))
    return mismatch(comparison, fmt::format("{} output values for {} of the reference, in rows of {}", output.size(),
                                            reference.size(), hidden));
  if (const auto bad = std::find_if(only_tokens.begin(), only_tokens.end(), outside); bad != only_tokens.end())
    return mismatch(comparison, fmt::format("token {} is asked for; there are {}", *bad, tokens));
  Totals totals;
  const auto width = static_cast<std::size_t>(hidden);
  const auto row = [&](std::int64_t token) {
    const std::size_t first = static_cast<std::size_t>(token) * width;
    compare_row(output.subspan(first, width), reference.subspan(first, width), token, totals, comparison);
  };
  if (only_tokens.empty())
    for (std::int64_t token = 0; token < tokens; ++token) row(token);
  for (const std::int64_t token : only_tokens) row(token);
  comparison.relative_error = std::sqrt(ratio(totals.error, totals.norm));
  comparison.tolerance = tolerance_for(totals, tolerance);
  const double worst_allowed = hidden < kTellingColumns ? std::numeric_limits<double>::max() : kWorstFactor * tolerance;
  comparison.within =
      comparison.finite && comparison.relative_error <= comparison.tolerance && comparison.worst_error <= worst_allowed;
  return comparison;
}

// What a correct backend may round, each time to bf16 with 8 significant bits: half a step is at most 2^-8 of the
// value. Over values spread evenly in logarithm, the rounding error is uniform within half a step, so that its root
// mean square over the values' own is
//     r = 2^-7 / sqrt(12) / sqrt(E[m²]) = 0.392 · 2^-8,   m in [1, 2), E[m²] = (4 - 1) / (2 ln 2) = 2.164.
// Errors of different roundings are independent and add as squares; through a projection with independent rows they
// keep their relative size. The roundings, in units of r:
//     1  the output;
//     1  an expert's own output, before the routing weight (backends that reduce in a second kernel);
//     1  the intermediate, which the down projection reads;
//     1  up, where the first projection is stored before the activation; it passes the activation as it is;
//     2  gate, likewise: the activation turns dg into f'(g) dg. Relative to f(g) that is 1 for large g; for small g,
//        where f is steeper than linear (relu(g)²: exactly 2 everywhere), at most 2 in the mean square;
//     2  the input times the routing weight, where the layer has it so: it reaches gate and up both, by 1 and up to 2
//        (added as amplitudes when nonlinear: 3, so counted as 3 below).
// Integer kernels bring the activations to at least 14 bits with one scale per group: a step of amax · 2^-13, where
// amax is about 4 times the root mean square; error 2^-13 · 4 / sqrt(12) = 0.036 · 2^-8 = 0.09 r, once for the input
// (passing the activation by up to 3) and once for the intermediate: 0.3 r. The sum's root is then multiplied by a
// margin for activations whose products are not spread as evenly as assumed. Backends that round all of this come to
// 0.5 to 0.9 of it over 24 tokens (compare_test.cpp).
double layer_tolerance(const Problem& problem) {
  constexpr double kRounding = 0.392 * 0x1p-8;
  constexpr double kMargin = 1.25;
  double squares = 1.0 + 1.0 + 1.0 + 0.3 * 0.3;
  squares += problem.gated ? 1.0 + 4.0 : 4.0;
  if (problem.router.weight_on_input) squares += 9.0;
  return kMargin * kRounding * std::sqrt(squares);
}

std::vector<std::uint16_t> random_input(std::int64_t tokens, std::int64_t hidden, std::uint64_t seed) {
  // The sum of 16 uniform 16-bit integers is normal but for its kurtosis (2.93 instead of 3) and exact everywhere.
  constexpr int kWords = 4;
  constexpr double kMean = 16 * 65535 / 2.0;
  constexpr double kPerDeviation = 75674.45;  // 65536 · sqrt(16 / 12)
  SplitMix64 random(seed);
  std::vector<std::uint16_t> input(static_cast<std::size_t>(tokens * hidden));
  for (std::uint16_t& value : input) {
    std::uint64_t sum = 0;
    for (int word = 0; word < kWords; ++word)
      for (std::uint64_t bits = random.next(); bits != 0; bits >>= 16) sum += bits & 0xffffU;
    value = float_to_bf16(static_cast<float>((static_cast<double>(sum) - kMean) / kPerDeviation));
  }
  return input;
}

}  // namespace moetune
