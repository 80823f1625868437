// For tests: small layers of any format, and a second, naive computation of a layer to hold the reference against.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "formats/convert.h"
#include "formats/dequantize.h"
#include "formats/quantize.h"
#include "model/layer.h"
#include "moe/random.h"
#include "moe/reference.h"

namespace moetune {

/// Nearly normal values (the sum of four uniform ones) of the given standard deviation.
inline std::vector<float> random_floats(SplitMix64& random, std::int64_t count, double deviation) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    double sum = -2.0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(random.below(1U << 24)) * 0x1p-24;
    value = static_cast<float>(sum * std::sqrt(3.0) * deviation);
  }
  return values;
}

inline ExpertStack random_stack(const Problem& problem, std::int64_t n, std::int64_t k, SplitMix64& random) {
  auto stack = ExpertStack::allocate(problem.weights, problem.experts, n, k);
  EXPECT_TRUE(stack);
  const MatrixBytes bytes = matrix_bytes(problem.weights, n, k);
  for (std::int64_t expert = 0; expert < problem.experts; ++expert) {
    const auto values = random_floats(random, n * k, 1.0 / std::sqrt(static_cast<double>(k)));
    const auto matrix = quantize(problem.weights, values, n, k);
    EXPECT_TRUE(matrix);
    const auto copy = [expert](Buffer& to, const std::vector<std::byte>& from, std::int64_t size) {
      if (size != 0) std::memcpy(to.data() + expert * size, from.data(), static_cast<std::size_t>(size));
    };
    copy(stack->data, matrix->data, bytes.data);
    copy(stack->scales, matrix->scales, bytes.scales);
    copy(stack->zeros, matrix->zeros, bytes.zeros);
    if (!stack->global_scale.empty()) stack->global_scale[static_cast<std::size_t>(expert)] = matrix->global_scale;
  }
  if (problem.bias) stack->bias = random_floats(random, problem.experts * n, 0.5);
  return *std::move(stack);
}

inline Layer make_layer(const Problem& problem, std::uint64_t seed) {
  SplitMix64 random(seed);
  Layer layer;
  if (problem.gated) layer.gate = random_stack(problem, problem.intermediate, problem.hidden, random);
  layer.up = random_stack(problem, problem.intermediate, problem.hidden, random);
  layer.down = random_stack(problem, problem.hidden, problem.intermediate, random);
  return layer;
}

/// What a backend rounds on its way; each function is applied to one value. By default nothing.
struct Roundings {
  std::function<double(double)> weighted_input = [](double x) { return x; };
  std::function<double(double)> projected = weighted_input;      ///< gate and up, before the activation
  std::function<double(double)> intermediate = weighted_input;   ///< after it
  std::function<double(double)> expert_output = weighted_input;  ///< before the routing weight
};

inline double to_bf16_and_back(double x) {
  return static_cast<double>(bf16_to_float(float_to_bf16(static_cast<float>(x))));
}

/// One row of W x + b.
inline double project(const ExpertStack& stack, std::int64_t expert, std::int64_t row, const std::vector<double>& x) {
  std::vector<float> weights(static_cast<std::size_t>(stack.k));
  dequantize_row(stack.at(expert), row, weights);
  double sum = stack.bias.empty() ? 0.0 : static_cast<double>(stack.bias_of(expert)[static_cast<std::size_t>(row)]);
  for (std::size_t i = 0; i < weights.size(); ++i) sum += static_cast<double>(weights[i]) * x[i];
  return sum;
}

/// The layer pair by pair, in plain loops.
inline std::vector<double> naive_layer(const Problem& problem, const Layer& layer, std::span<const std::uint16_t> input,
                                       const Routing& routing, const Roundings& round = {}) {
  std::vector<double> output(input.size());
  for (std::size_t pair = 0; pair < routing.ids.size(); ++pair) {
    const std::int32_t expert = routing.ids[pair];
    if (expert < 0) continue;
    const std::size_t first = pair / static_cast<std::size_t>(routing.top_k) * static_cast<std::size_t>(problem.hidden);
    const double weight = static_cast<double>(routing.weights[pair]);
    const bool on_input = problem.router.weight_on_input;
    std::vector<double> x(static_cast<std::size_t>(problem.hidden)), h(static_cast<std::size_t>(problem.intermediate));
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<double>(bf16_to_float(input[first + i]));
      if (on_input) x[i] = round.weighted_input(x[i] * weight);
    }
    for (std::int64_t row = 0; row < problem.intermediate; ++row) {
      const double gate = problem.gated ? round.projected(project(layer.gate, expert, row, x)) : 0.0;
      const double up = round.projected(project(layer.up, expert, row, x));
      h[static_cast<std::size_t>(row)] = round.intermediate(activate(problem.activation, problem.gated, gate, up));
    }
    for (std::int64_t row = 0; row < problem.hidden; ++row) {
      const double y = round.expert_output(project(layer.down, expert, row, h));
      output[first + static_cast<std::size_t>(row)] += (on_input ? 1.0 : weight) * y;
    }
  }
  return output;
}

}  // namespace moetune
