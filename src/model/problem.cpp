#include "model/problem.h"

#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <limits>

namespace moetune {
namespace {

constexpr std::int64_t kMaxParallel = 1024;

/// The numbers nearest to `from` for which `works` holds, one below and one above, as words: "4 and 6".
std::string nearest(std::int64_t from, const std::function<bool(std::int64_t)>& works) {
  std::string text;
  for (std::int64_t below = from - 1; below >= 1; --below)
    if (works(below)) {
      text = std::to_string(below);
      break;
    }
  for (std::int64_t above = from + 1; above <= kMaxParallel; ++above)
    if (works(above)) return text.empty() ? std::to_string(above) : fmt::format("{} and {}", text, above);
  return text;
}

/// What a device's share of the experts' width must be a multiple of: the blocks and groups that scales go by.
std::int64_t width_unit(const WeightSpec& weights) {
  switch (weights.format) {
    case WeightFormat::fp8_block: {
      // Rows of gate and up by block_n, columns of down by block_k.
      const std::int64_t n = weights.block_n, k = weights.block_k;
      return n % k == 0 ? n : k % n == 0 ? k : n * k;
    }
    case WeightFormat::mxfp8:
    case WeightFormat::nvfp4:
    case WeightFormat::mxfp4:
    case WeightFormat::int4:
      return weights.block_k % 2 == 0 ? weights.block_k : 2 * weights.block_k;
    default:
      return 1;
  }
}

bool width_divides(const Geometry& geometry, std::int64_t tp) {
  if (geometry.intermediate % tp != 0) return false;
  // Uncut, the last block may be a short one; a cut through a block would need its scale twice.
  return tp == 1 || geometry.intermediate / tp % width_unit(geometry.weights) == 0;
}

Status check_parallel(std::string_view name, std::int64_t size, std::int64_t rank) {
  if (size < 1 || size > kMaxParallel) return fail(fmt::format("--{} {}: from 1 to {}", name, size, kMaxParallel));
  if (rank < 0 || rank >= size)
    return fail(fmt::format("--{}-rank {}: with --{} {} it is from 0 to {}", name, rank, name, size, size - 1));
  return {};
}

}  // namespace

Result<Problem> cut(const Geometry& geometry, const Cut& how) {
  MOETUNE_CHECK(check_parallel("tp", how.tp, how.tp_rank));
  MOETUNE_CHECK(check_parallel("ep", how.ep, how.ep_rank));
  if (!width_divides(geometry, how.tp)) {
    const std::int64_t unit = width_unit(geometry.weights);
    const std::string need =
        unit == 1 ? ""
                  : fmt::format(", which must be a multiple of {} for {} weights", unit, describe(geometry.weights));
    return fail(fmt::format("intermediate {} / TP {} = {:.6g}{}", geometry.intermediate, how.tp,
                            static_cast<double>(geometry.intermediate) / static_cast<double>(how.tp),
                            need.empty() ? ", not a whole number" : need),
                {fmt::format("nearest --tp that divides: {}",
                             nearest(how.tp, [&](std::int64_t tp) { return width_divides(geometry, tp); }))});
  }
  if (geometry.experts % how.ep != 0)
    return fail(fmt::format("{} experts / EP {} = {:.6g}, not a whole number", geometry.experts, how.ep,
                            static_cast<double>(geometry.experts) / static_cast<double>(how.ep)),
                {fmt::format("nearest --ep that divides: {}",
                             nearest(how.ep, [&](std::int64_t ep) { return geometry.experts % ep == 0; }))});
  Problem problem;
  problem.model = geometry.model;
  problem.experts = geometry.experts / how.ep;
  problem.experts_global = geometry.experts;
  problem.first_expert = problem.experts * how.ep_rank;
  problem.top_k = geometry.top_k;
  problem.hidden = geometry.expert_hidden;
  problem.intermediate = geometry.intermediate / how.tp;
  problem.tp = how.tp;
  problem.ep = how.ep;
  problem.gated = geometry.gated;
  problem.bias = geometry.expert_bias;
  problem.activation = geometry.activation;
  problem.router = geometry.router;
  problem.weights = geometry.weights;
  problem.activations = geometry.activations;
  return problem;
}

double layer_flops(const Problem& problem, std::int64_t pairs) {
  const double projections = problem.gated ? 3 : 2;
  return 2.0 * projections * static_cast<double>(problem.hidden) * static_cast<double>(problem.intermediate) *
         static_cast<double>(pairs);
}

std::int64_t expert_bytes(const Problem& problem) {
  const std::int64_t into = matrix_bytes(problem.weights, problem.intermediate, problem.hidden).total();
  const std::int64_t out = matrix_bytes(problem.weights, problem.hidden, problem.intermediate).total();
  const std::int64_t ways = problem.gated ? 2 : 1;
  const std::int64_t bias = problem.bias ? 4 * (ways * problem.intermediate + problem.hidden) : 0;
  return ways * into + out + bias;
}

std::int64_t layer_bytes(const Problem& problem, std::int64_t tokens, std::int64_t active_experts) {
  constexpr std::int64_t kBf16Bytes = 2;
  return active_experts * expert_bytes(problem) + 2 * kBf16Bytes * tokens * problem.hidden;
}

}  // namespace moetune
