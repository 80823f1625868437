// Is the tolerance wide enough for every correct backend and tight enough for every wrong one?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "moe/test_layer.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

template <class T>
std::vector<std::uint16_t> to_bf16(const std::vector<T>& values) {
  std::vector<std::uint16_t> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(),
                 [](T value) { return float_to_bf16(static_cast<float>(value)); });
  return rounded;
}

/// A backend that stores whatever it can in bf16.
Roundings careless() {
  Roundings round;
  round.weighted_input = to_bf16_and_back;
  round.projected = to_bf16_and_back;
  round.intermediate = to_bf16_and_back;
  round.expert_output = to_bf16_and_back;
  return round;
}

Problem mid_problem(const WeightSpec& weights = WeightSpec::nvfp4()) {
  Problem problem;
  problem.experts = problem.experts_global = 8;
  problem.top_k = 2;
  problem.hidden = 128;
  problem.intermediate = 96;
  problem.weights = weights;
  return problem;
}

/// A layer, a call and its reference.
struct Call {
  explicit Call(const Problem& p, RoutingKind kind = RoutingKind::uniform, std::int64_t tokens = 24)
      : problem(p),
        layer(make_layer(p, 1)),
        input(random_input(tokens, p.hidden, 2)),
        routing(random_routing(p, tokens, kind, 3)) {
    auto output = reference_layer(problem, layer, input, routing);
    EXPECT_TRUE(output);
    reference = *std::move(output);
  }

  [[nodiscard]] Comparison compare(const std::vector<double>& output) const {
    return compare_output(to_bf16(output), reference, problem.hidden, layer_tolerance(problem));
  }

  Problem problem;
  Layer layer;
  std::vector<std::uint16_t> input;
  Routing routing;
  std::vector<float> reference;
};

std::vector<Problem> kinds_of_layers() {
  std::vector<Problem> problems;
  for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh,
                                    ActivationKind::relu2, ActivationKind::silu_clamped, ActivationKind::swiglu_oai})
    for (int bits = 0; bits < 4; ++bits) {
      Problem problem = mid_problem();
      problem.activation = {kind, 1.702, 1.5};
      problem.gated = (bits & 1) != 0;
      problem.router.weight_on_input = (bits & 2) != 0;
      problem.bias = kind == ActivationKind::swiglu_oai;
      problems.push_back(problem);
    }
  return problems;
}

std::string name_of(const Problem& problem) {
  return std::string(to_string(problem.activation.kind)) + (problem.gated ? "" : ", not gated") +
         (problem.router.weight_on_input ? ", weight on input" : "");
}

TEST(Tolerance, TakesACorrectBackendThatRoundsEverything) {
  for (const Problem& problem : kinds_of_layers()) {
    const Call call(problem);
    const Comparison worst = call.compare(naive_layer(problem, call.layer, call.input, call.routing, careless()));
    EXPECT_TRUE(worst.within) << name_of(problem) << ": " << worst.relative_error << " of " << worst.tolerance << ", "
                              << worst.worst_error << " at " << worst.worst;
    // It is not so wide that rounding everything hardly shows.
    EXPECT_GT(worst.relative_error, worst.tolerance / 4) << name_of(problem);
    // Only the output in bf16, which no backend can avoid: r of the derivation, 0.392 · 2^-8.
    const Comparison best = call.compare(naive_layer(problem, call.layer, call.input, call.routing));
    EXPECT_NEAR(best.relative_error, 0.392 * 0x1p-8, 0.1 * 0x1p-8) << name_of(problem);
  }
}

TEST(Tolerance, TakesACorrectBackendOnOneToken) {
  for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::relu2}) {
    Problem problem = mid_problem(WeightSpec::bf16());
    problem.activation.kind = kind;
    const Layer layer = make_layer(problem, 1);
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const auto input = random_input(1, problem.hidden, seed);
      const Routing routing = random_routing(problem, 1, RoutingKind::uniform, seed);
      const auto reference = reference_layer(problem, layer, input, routing);
      ASSERT_TRUE(reference);
      const Comparison result = compare_output(to_bf16(naive_layer(problem, layer, input, routing, careless())),
                                               *reference, problem.hidden, layer_tolerance(problem));
      EXPECT_TRUE(result.within) << to_string(kind) << ", seed " << seed << ": " << result.relative_error << " of "
                                 << result.tolerance << ", " << result.worst_error;
    }
  }
}

TEST(Tolerance, TakesFourteenBitActivations) {
  const Call call(mid_problem());
  Call quantised(mid_problem());
  const auto to_steps = [](double x) { return std::nearbyint(x * 0x1p11) * 0x1p-11; };  // amax 4, 14 bits
  for (std::uint16_t& x : quantised.input)
    x = float_to_bf16(static_cast<float>(to_steps(static_cast<double>(bf16_to_float(x)))));
  Roundings round;
  round.intermediate = to_steps;
  const Comparison result = call.compare(naive_layer(call.problem, call.layer, quantised.input, call.routing, round));
  EXPECT_TRUE(result.within) << result.relative_error;
}

/// Outputs of a damaged call must not be within the tolerance.
void expect_caught(const Call& good, const Call& damaged, const std::string& what) {
  const Comparison result =
      good.compare(naive_layer(damaged.problem, damaged.layer, damaged.input, damaged.routing, careless()));
  EXPECT_FALSE(result.within) << what << ": " << result.relative_error << " and " << result.worst_error << " of "
                              << result.tolerance;
}

/// Doubles the last group scale of one row of one expert.
void double_one_scale(ExpertStack& stack, std::int64_t expert, std::int64_t row) {
  const WeightSpec& spec = stack.spec;
  const std::int64_t groups = ceil_div(stack.k, spec.block_k);
  const std::int64_t index = (expert * stack.n + row) * groups + groups - 1;
  if (spec.format == WeightFormat::int4) {
    float scale = 0.0F;
    std::memcpy(&scale, stack.scales.data() + 4 * index, 4);
    scale *= 2.0F;
    std::memcpy(stack.scales.data() + 4 * index, &scale, 4);
  } else {
    const int exponent_step = spec.format == WeightFormat::nvfp4 ? 8 : 1;
    std::byte& code = stack.scales.data()[index];
    code = static_cast<std::byte>(std::to_integer<int>(code) + exponent_step);
  }
}

TEST(Tolerance, CatchesOneWrongGroupScaleOfOneExpertRow) {
  for (const WeightSpec& spec : {WeightSpec::nvfp4(), WeightSpec::mxfp4(), WeightSpec::int4(16)}) {
    const Call good(mid_problem(spec), RoutingKind::one_hot);
    for (int which = 0; which < 3; ++which) {
      Call damaged(mid_problem(spec), RoutingKind::one_hot);
      ExpertStack& stack = which == 0 ? damaged.layer.gate : which == 1 ? damaged.layer.up : damaged.layer.down;
      double_one_scale(stack, damaged.routing.ids[0], stack.n / 2);
      expect_caught(good, damaged, describe(spec) + (which == 0 ? " gate" : which == 1 ? " up" : " down"));
    }
  }
}

TEST(Tolerance, CatchesOneDroppedPair) {
  // Also in a call of many tokens, where the norm over all hardly moves.
  for (const std::int64_t tokens : {1, 24, 300}) {
    const Call good(mid_problem(), RoutingKind::uniform, tokens);
    Call damaged(mid_problem(), RoutingKind::uniform, tokens);
    damaged.routing.ids.back() = -1;
    expect_caught(good, damaged, std::to_string(tokens) + " tokens");
  }
}

TEST(Tolerance, CatchesWrongRouting) {
  const Call good(mid_problem());
  Call swapped(mid_problem());
  std::swap(swapped.routing.weights[0], swapped.routing.weights[1]);
  expect_caught(good, swapped, "weights of two experts exchanged");
  Call neighbour(mid_problem());
  neighbour.routing.ids[6] = (neighbour.routing.ids[6] + 1) % 8;
  expect_caught(good, neighbour, "the next expert");
  Call scaled(mid_problem());
  for (float& weight : scaled.routing.weights) weight *= 1.01F;
  expect_caught(good, scaled, "weights one per cent too large");
}

TEST(Tolerance, CatchesWrongArithmetic) {
  const Call good(mid_problem());
  Call tanh_form(mid_problem());
  tanh_form.problem.activation.kind = ActivationKind::gelu;
  expect_caught(good, tanh_form, "gelu for silu");
  Call exchanged(mid_problem());
  std::swap(exchanged.layer.gate, exchanged.layer.up);
  expect_caught(good, exchanged, "gate and up exchanged");
  Call nibble(mid_problem());
  std::byte& pair = nibble.layer.down.data.data()[nibble.routing.ids[0] * 128 * 48];
  pair ^= std::byte{0x08};
  expect_caught(good, nibble, "one sign of one weight");
}

TEST(Tolerance, CatchesOneWrongColumnOfUp) {
  const Call good(mid_problem());
  Call damaged(mid_problem());
  for (std::int64_t row = 0; row < 96; ++row)
    damaged.layer.up.data.data()[(damaged.routing.ids[0] * 96 + row) * 64] ^= std::byte{0x08};
  expect_caught(good, damaged, "the sign of the first weight of each row");
}

TEST(CompareOutput, ByHand) {
  const std::vector<float> reference = {3.0F, 4.0F, 0.0F, 0.0F, 6.0F, 8.0F};
  std::vector<std::uint16_t> output = to_bf16(reference);
  const Comparison equal = compare_output(output, reference, 2, 0.0);
  EXPECT_TRUE(equal.within);
  EXPECT_EQ(equal.relative_error, 0.0);
  EXPECT_EQ(equal.worst, "");
  output[5] = float_to_bf16(9.0F);
  const Comparison off = compare_output(output, reference, 2, 0.1);
  EXPECT_NEAR(off.relative_error, 1.0 / std::sqrt(125.0), 1e-12);
  EXPECT_NEAR(off.worst_error, 1.0 / std::sqrt(50.0), 1e-12);
  EXPECT_EQ(off.worst, "token 2, column 1: 9, expected 8");
  // Squared norms 25, 0 and 100: the tolerance is 1 + sqrt(10625) / 125 = 1.825 wide.
  EXPECT_NEAR(off.tolerance, 0.1825, 1e-4);
  EXPECT_TRUE(off.within);
  EXPECT_TRUE(compare_output(output, reference, 2, 0.0491).within);  // 0.0894 / 1.825 = 0.0490
  EXPECT_FALSE(compare_output(output, reference, 2, 0.0489).within);
  const std::vector<std::int64_t> first = {0};
  EXPECT_EQ(compare_output(output, reference, 2, 0.0, first).relative_error, 0.0);
  const std::vector<std::int64_t> last = {2};
  EXPECT_NEAR(compare_output(output, reference, 2, 0.0, last).relative_error, 0.1, 1e-12);
}

TEST(CompareOutput, WhereTheReferenceIsZeroOnlyZeroWillDo) {
  const std::vector<float> reference = {0.0F, 0.0F, 1.0F, 1.0F};
  std::vector<std::uint16_t> output = {0, 0x8000, 0x3f80, 0x3f80};  // minus zero is zero
  EXPECT_TRUE(compare_output(output, reference, 2, 0.01).within);
  output[0] = float_to_bf16(1e-6F);
  const Comparison result = compare_output(output, reference, 2, 0.01);
  EXPECT_FALSE(result.within);
  EXPECT_THAT(result.worst, HasSubstr("token 0, column 0"));
}

TEST(CompareOutput, OneElementIsHeldAgainstItsRowOnlyWhereTheRowIsWide) {
  // 64 tokens of 1, but one of 0.01 with an error of a tenth: nothing in the norm, far off in its row.
  for (const std::size_t columns : {1U, 15U, 16U, 64U}) {
    std::vector<float> reference(64 * columns, 1.0F);
    std::fill_n(reference.begin(), columns, 0.01F);
    std::vector<std::uint16_t> output = to_bf16(reference);
    output[0] = float_to_bf16(0.011F);
    const Comparison result = compare_output(output, reference, static_cast<std::int64_t>(columns), 0.005);
    EXPECT_LT(result.relative_error, 0.005);
    EXPECT_GT(result.worst_error, kWorstFactor * 0.005);
    EXPECT_EQ(result.within, columns < 16) << columns << " columns";
  }
}

TEST(CompareOutput, NotFiniteIsNeverWithin) {
  const std::vector<float> reference = {1.0F, 1.0F, 1.0F};
  for (const std::uint16_t bits : std::initializer_list<std::uint16_t>{0x7fc0, 0x7f80, 0xff80}) {
    const Comparison result = compare_output(std::vector<std::uint16_t>{0x3f80, bits, 0x3f80}, reference, 3,
                                             std::numeric_limits<double>::infinity());
    EXPECT_FALSE(result.finite);
    EXPECT_FALSE(result.within);
    EXPECT_THAT(result.worst, HasSubstr("token 0, column 1"));
  }
}

TEST(CompareOutput, AReferenceThatIsNotFiniteIsNeverWithin) {
  const std::vector<float> reference = {1.0F, std::nanf(""), 1.0F};
  const std::vector<std::uint16_t> output = {0x3f80, 0x3f80, 0x3f80};
  EXPECT_FALSE(compare_output(output, reference, 3, 1e9).within);
}

TEST(CompareOutput, SizesThatDoNotMatch) {
  const std::vector<float> reference(6, 1.0F);
  const std::vector<std::uint16_t> output(6, 0x3f80);
  EXPECT_TRUE(compare_output(output, reference, 3, 0.0).within);
  EXPECT_FALSE(compare_output(output, reference, 4, 1.0).within);
  EXPECT_FALSE(compare_output(output, reference, 0, 1.0).within);
  EXPECT_FALSE(compare_output(std::span(output).first(5), reference, 3, 1.0).within);
  const std::vector<std::int64_t> beyond = {2};
  EXPECT_FALSE(compare_output(output, reference, 3, 1.0, beyond).within);
}

}  // namespace
}  // namespace moetune
