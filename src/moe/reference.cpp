#include "moe/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/parallel.h"
#include "formats/convert.h"
#include "formats/dequantize.h"

namespace moetune {
namespace {

/// One use of an expert by a token.
struct Pair {
  std::size_t token = 0;
  double weight = 0;
};

/// Rows of a projection that one task computes.
constexpr std::int64_t kRowsPerTask = 32;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// The one-argument part of each activation.
double nonlinearity(const Activation& activation, double x) {
  switch (activation.kind) {
    case ActivationKind::silu:
      return x * sigmoid(x);
    case ActivationKind::silu_clamped: {
      const double clamped = std::min(x, activation.limit);
      return clamped * sigmoid(clamped);
    }
    case ActivationKind::swiglu_oai: {
      const double clamped = std::min(x, activation.limit);
      return clamped * sigmoid(activation.alpha * clamped);
    }
    case ActivationKind::gelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case ActivationKind::gelu_tanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case ActivationKind::relu2:
      return x > 0.0 ? x * x : 0.0;
    case ActivationKind::situ:
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// What multiplies the nonlinearity of the gate.
double linear_part(const Activation& activation, double up) {
  switch (activation.kind) {
    case ActivationKind::silu_clamped:
      return std::clamp(up, -activation.limit, activation.limit);
    case ActivationKind::swiglu_oai:
      return std::clamp(up, -activation.limit, activation.limit) + 1.0;
    default:
      return up;
  }
}

/// Sum of products in fp64, where each product of two floats is exact. Eight sums side by side, because the compiler
/// may not reorder one.
double dot(std::span<const float> a, const float* b) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  const std::size_t whole = a.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
  double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  for (std::size_t i = whole; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// The projections of one expert; gate.data is null where there is none.
struct Expert {
  MatrixView gate, up, down;
  std::span<const float> gate_bias, up_bias, down_bias;
};

double bias_at(std::span<const float> bias, std::int64_t row) {
  return bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<std::size_t>(row)]);
}

/// Which rows of which pair lists a computation covers, and its intermediate results.
class Computation {
 public:
  /// `input` as floats [tokens, H]; `pairs` of each expert.
  Computation(const Activation& activation, bool weight_on_input, std::span<const Expert> experts,
              std::span<const std::vector<Pair>> pairs, std::span<const float> input)
      : activation_(activation), weight_on_input_(weight_on_input), experts_(experts), pairs_(pairs), input_(input) {
    std::size_t pair_count = 0;
    for (std::size_t expert = 0; expert < experts.size(); ++expert) {
      first_pair_.push_back(pair_count);
      pair_count += pairs[expert].size();
      if (!pairs[expert].empty()) active_.push_back(expert);
    }
    intermediate_.resize(pair_count * static_cast<std::size_t>(width()));
  }

  /// Fills `output` [tokens, H], zeroed before.
  void run(std::span<float> output) {
    if (active_.empty()) return;
    const std::int64_t up_blocks = ceil_div(width(), kRowsPerTask);
    parallel_for(std::ssize(active_) * up_blocks, [&](std::int64_t task) {
      const std::size_t expert = active_[static_cast<std::size_t>(task / up_blocks)];
      const std::int64_t first = task % up_blocks * kRowsPerTask;
      for (std::int64_t row = first; row < std::min(first + kRowsPerTask, width()); ++row) up_row(expert, row);
    });
    const std::int64_t rows = experts_[active_.front()].down.n;
    parallel_for(ceil_div(rows, kRowsPerTask), [&](std::int64_t task) {
      const std::int64_t first = task * kRowsPerTask;
      for (std::int64_t row = first; row < std::min(first + kRowsPerTask, rows); ++row) down_row(row, rows, output);
    });
  }

 private:
  [[nodiscard]] std::int64_t width() const { return experts_.front().up.n; }

  /// Row `row` of gate and up, and the activation, for every pair of an expert.
  void up_row(std::size_t expert, std::int64_t row) {
    const Expert& weights = experts_[expert];
    const bool gated = weights.gate.data != nullptr;
    const auto hidden = static_cast<std::size_t>(weights.up.k);
    std::vector<float> up(hidden), gate(gated ? hidden : 0);
    dequantize_row(weights.up, row, up);
    if (gated) dequantize_row(weights.gate, row, gate);
    float* out = intermediate_.data() + first_pair_[expert] * static_cast<std::size_t>(width()) + row;
    for (const Pair& pair : pairs_[expert]) {
      const float* x = input_.data() + pair.token * hidden;
      const double factor = weight_on_input_ ? pair.weight : 1.0;
      const double u = factor * dot(up, x) + bias_at(weights.up_bias, row);
      const double g = gated ? factor * dot(gate, x) + bias_at(weights.gate_bias, row) : 0.0;
      *out = static_cast<float>(activate(activation_, gated, g, u));
      out += width();
    }
  }

  /// Column `row` of the output: that row of every expert's down projection, experts in ascending order.
  void down_row(std::int64_t row, std::int64_t rows, std::span<float> output) {
    std::vector<double> sums(output.size() / static_cast<std::size_t>(rows));
    std::vector<float> down(static_cast<std::size_t>(width()));
    for (const std::size_t expert : active_) {
      dequantize_row(experts_[expert].down, row, down);
      const double bias = bias_at(experts_[expert].down_bias, row);
      const float* h = intermediate_.data() + first_pair_[expert] * down.size();
      for (const Pair& pair : pairs_[expert]) {
        sums[pair.token] += (weight_on_input_ ? 1.0 : pair.weight) * (dot(down, h) + bias);
        h += down.size();
      }
    }
    for (std::size_t token = 0; token < sums.size(); ++token)
      output[token * static_cast<std::size_t>(rows) + static_cast<std::size_t>(row)] = static_cast<float>(sums[token]);
  }

  Activation activation_;
  bool weight_on_input_;
  std::span<const Expert> experts_;
  std::span<const std::vector<Pair>> pairs_;
  std::span<const float> input_;
  std::vector<std::size_t> active_;      ///< experts that have pairs, ascending
  std::vector<std::size_t> first_pair_;  ///< of each expert, in the intermediate
  std::vector<float> intermediate_;      ///< [pairs, I], the pairs of an expert together
};

Status check_activation(const Activation& activation) {
  if (activation.kind != ActivationKind::situ) return {};
  return fail("the activation situ is recognised but not computed");
}

Status check_matrix_size(std::string_view name, const MatrixView& matrix, std::int64_t n, std::int64_t k) {
  if (matrix.n != n || matrix.k != k)
    return fail(fmt::format("the {} projection is {} x {}, not {} x {}", name, matrix.n, matrix.k, n, k));
  if (matrix.data == nullptr) return fail(fmt::format("the {} projection has no weights", name));
  return check_shape(matrix.spec, n, k);
}

Status check_stack(std::string_view name, const ExpertStack& stack, const Problem& problem, std::int64_t n,
                   std::int64_t k) {
  if (stack.experts != problem.experts)
    return fail(fmt::format("the {} projection has {} experts, not {}", name, stack.experts, problem.experts));
  const std::size_t biases = problem.bias ? static_cast<std::size_t>(problem.experts * n) : 0;
  if (stack.bias.size() != biases)
    return fail(fmt::format("the {} projection has {} biases, not {}", name, stack.bias.size(), biases));
  return check_matrix_size(name, stack.at(0), n, k);
}

Status check_layer(const Problem& problem, const Layer& layer) {
  const std::int64_t hidden = problem.hidden, intermediate = problem.intermediate;
  if (problem.experts < 1) return fail(fmt::format("{} experts on this device", problem.experts));
  if (problem.gated) MOETUNE_CHECK(check_stack("gate", layer.gate, problem, intermediate, hidden));
  MOETUNE_CHECK(check_stack("up", layer.up, problem, intermediate, hidden));
  return check_stack("down", layer.down, problem, hidden, intermediate);
}

Status check_call(const Problem& problem, std::size_t inputs, const Routing& routing,
                  std::span<const std::int64_t> only_tokens) {
  const std::int64_t pairs = routing.tokens * routing.top_k;
  if (routing.tokens < 0 || routing.top_k < 0 || std::ssize(routing.ids) != pairs ||
      std::ssize(routing.weights) != pairs)
    return fail(fmt::format("a routing of {} x {} with {} ids and {} weights", routing.tokens, routing.top_k,
                            routing.ids.size(), routing.weights.size()));
  if (static_cast<std::int64_t>(inputs) != routing.tokens * problem.hidden)
    return fail(fmt::format("{} input values for {} tokens of {}", inputs, routing.tokens, problem.hidden));
  for (std::size_t pair = 0; pair < routing.ids.size(); ++pair) {
    const auto token = static_cast<std::int64_t>(pair) / routing.top_k;
    if (routing.ids[pair] < -1 || routing.ids[pair] >= problem.experts)
      return fail(fmt::format("token {} goes to expert {}; this device holds 0 to {}", token, routing.ids[pair],
                              problem.experts - 1));
    if (routing.ids[pair] >= 0 && !std::isfinite(routing.weights[pair]))
      return fail(fmt::format("token {} has the routing weight {}", token, routing.weights[pair]));
  }
  for (const std::int64_t token : only_tokens)
    if (token < 0 || token >= routing.tokens)
      return fail(fmt::format("token {} is asked for; there are {}", token, routing.tokens));
  return {};
}

/// The pairs of each expert, tokens ascending, over the wanted tokens.
std::vector<std::vector<Pair>> pairs_by_expert(const Routing& routing, std::int64_t experts,
                                               std::span<const std::int64_t> only_tokens) {
  std::vector<bool> wanted(static_cast<std::size_t>(routing.tokens), only_tokens.empty());
  for (const std::int64_t token : only_tokens) wanted[static_cast<std::size_t>(token)] = true;
  std::vector<std::vector<Pair>> pairs(static_cast<std::size_t>(experts));
  for (std::size_t i = 0; i < routing.ids.size(); ++i) {
    const std::size_t token = i / static_cast<std::size_t>(routing.top_k);
    if (routing.ids[i] < 0 || !wanted[token]) continue;
    pairs[static_cast<std::size_t>(routing.ids[i])].push_back({token, static_cast<double>(routing.weights[i])});
  }
  return pairs;
}

std::vector<float> to_floats(std::span<const std::uint16_t> input) {
  std::vector<float> floats(input.size());
  std::transform(input.begin(), input.end(), floats.begin(), bf16_to_float);
  return floats;
}

}  // namespace

double activate(const Activation& activation, bool gated, double gate, double up) {
  if (!gated) return nonlinearity(activation, up);
  return nonlinearity(activation, gate) * linear_part(activation, up);
}

Result<std::vector<float>> reference_layer(const Problem& problem, const Layer& layer,
                                           std::span<const std::uint16_t> input, const Routing& routing,
                                           std::span<const std::int64_t> only_tokens) {
  MOETUNE_CHECK(check_activation(problem.activation));
  MOETUNE_CHECK(check_layer(problem, layer));
  MOETUNE_CHECK(check_call(problem, input.size(), routing, only_tokens));
  std::vector<Expert> experts;
  for (std::int64_t expert = 0; expert < problem.experts; ++expert) {
    experts.push_back(
        {{}, layer.up.at(expert), layer.down.at(expert), {}, layer.up.bias_of(expert), layer.down.bias_of(expert)});
    if (!problem.gated) continue;
    experts.back().gate = layer.gate.at(expert);
    experts.back().gate_bias = layer.gate.bias_of(expert);
  }
  const auto pairs = pairs_by_expert(routing, problem.experts, only_tokens);
  const std::vector<float> floats = to_floats(input);
  std::vector<float> output(input.size());
  Computation(problem.activation, problem.router.weight_on_input, experts, pairs, floats).run(output);
  return output;
}

Result<std::vector<float>> reference_mlp(const Activation& activation, const MatrixView* gate, const MatrixView& up,
                                         const MatrixView& down, std::span<const std::uint16_t> input,
                                         std::int64_t tokens) {
  MOETUNE_CHECK(check_activation(activation));
  if (gate != nullptr) MOETUNE_CHECK(check_matrix_size("gate", *gate, up.n, up.k));
  MOETUNE_CHECK(check_matrix_size("up", up, up.n, up.k));
  MOETUNE_CHECK(check_matrix_size("down", down, down.n, up.n));
  if (tokens < 0 || std::ssize(input) / up.k != tokens || std::ssize(input) % up.k != 0)
    return fail(fmt::format("{} input values for {} tokens of {}", input.size(), tokens, up.k));
  const std::vector<Expert> experts = {{gate != nullptr ? *gate : MatrixView{}, up, down, {}, {}, {}}};
  std::vector<std::vector<Pair>> pairs(1);
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token) pairs[0].push_back({token, 1.0});
  const std::vector<float> floats = to_floats(input);
  std::vector<float> output(static_cast<std::size_t>(tokens * down.n));
  Computation(activation, false, experts, pairs, floats).run(output);
  return output;
}

}  // namespace moetune
