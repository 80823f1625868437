#include "moe/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "formats/test_fixture.h"
#include "moe/test_layer.h"

namespace moetune {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The bf16 stack of a fixture; empty text: an empty stack.
ExpertStack read_stack(const Json& weights, const Json& bias, std::int64_t experts, std::int64_t n, std::int64_t k) {
  const auto values = unhex<std::byte>(weights);
  if (values.empty()) return {};
  auto stack = ExpertStack::allocate(WeightSpec::bf16(), experts, n, k);
  EXPECT_TRUE(stack);
  EXPECT_EQ(std::ssize(values), stack->data.size());
  std::memcpy(stack->data.data(), values.data(), values.size());
  stack->bias = unhex<float>(bias);
  return *std::move(stack);
}

/// Sums in fp64 of fp32 values: the intermediate's rounding to fp32 is what is left.
void expect_near(const std::vector<float>& got, const Json& want, const std::string& name) {
  ASSERT_EQ(got.size(), want.size()) << name;
  double largest = 0;
  for (const Json& value : want) largest = std::max(largest, std::abs(value.get<double>()));
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i].get<double>(), 3e-7 * largest) << name << i;
}

TEST(ReferenceLayer, EqualsTheModellingCode) {
  const Json fixture = read_fixture("moe/layers.json");
  ASSERT_EQ(fixture["layers"].size(), 12U);
  for (const Json& json : fixture["layers"]) {
    const auto name = json["name"].get<std::string>();
    Problem problem;
    ASSERT_TRUE(from_json(json["problem"], problem)) << name;
    const std::int64_t experts = problem.experts, hidden = problem.hidden, intermediate = problem.intermediate;
    Layer layer;
    layer.gate = read_stack(json["gate"], json["gate_bias"], experts, intermediate, hidden);
    layer.up = read_stack(json["up"], json["up_bias"], experts, intermediate, hidden);
    layer.down = read_stack(json["down"], json["down_bias"], experts, hidden, intermediate);
    Routing routing{json["tokens"].get<std::int64_t>(), problem.top_k, {}, unhex<float>(json["weights"])};
    ASSERT_TRUE(from_json(json["ids"], routing.ids)) << name;
    const auto output = reference_layer(problem, layer, unhex<std::uint16_t>(json["input"]), routing);
    ASSERT_TRUE(output) << name << ": " << output.error().what;
    expect_near(*output, json["output"], name);
  }
}

TEST(ReferenceMlp, EqualsTheModellingCode) {
  const Json fixture = read_fixture("moe/layers.json");
  ASSERT_EQ(fixture["mlps"].size(), 2U);
  for (const Json& json : fixture["mlps"]) {
    const auto name = json["name"].get<std::string>();
    Activation activation;
    ASSERT_TRUE(from_json(json["activation"], activation)) << name;
    const auto hidden = json["hidden"].get<std::int64_t>(), intermediate = json["intermediate"].get<std::int64_t>();
    const ExpertStack gate = read_stack(json["gate"], "", 1, intermediate, hidden);
    const ExpertStack up = read_stack(json["up"], "", 1, intermediate, hidden);
    const ExpertStack down = read_stack(json["down"], "", 1, hidden, intermediate);
    const MatrixView gate_view = gate.experts != 0 ? gate.at(0) : MatrixView{};
    const auto output = reference_mlp(activation, gate.experts != 0 ? &gate_view : nullptr, up.at(0), down.at(0),
                                      unhex<std::uint16_t>(json["input"]), json["tokens"].get<std::int64_t>());
    ASSERT_TRUE(output) << name << ": " << output.error().what;
    expect_near(*output, json["output"], name);
  }
}

TEST(Activate, EqualsTorch) {
  const Json fixture = read_fixture("moe/layers.json");
  const Json& tables = fixture["activations"];
  for (const ActivationKind kind :
       {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu2}) {
    const Json& want = tables[std::string(to_string(kind))];
    ASSERT_GE(want.size(), 100U);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const auto x = tables["x"][i].get<double>();
      const double expected = want[i].get<double>();
      // Far out on the left gelu is a difference of nearly equal numbers in torch: absolute there.
      const double near = 1e-12 * std::abs(expected) + 1e-14;
      EXPECT_NEAR(activate({kind, 0, 0}, false, 99.0, x), expected, near) << to_string(kind) << " of " << x;
      EXPECT_NEAR(activate({kind, 0, 0}, true, x, -3.0), -3.0 * expected, 3 * near) << to_string(kind) << " of " << x;
    }
  }
}

TEST(Activate, ClampsByHand) {
  const Activation clamped{ActivationKind::silu_clamped, 0, 2.0};
  const double silu_of_two = 2.0 / (1.0 + std::exp(-2.0));
  EXPECT_DOUBLE_EQ(activate(clamped, true, 5.0, 9.0), silu_of_two * 2.0);              // both clamped above
  EXPECT_DOUBLE_EQ(activate(clamped, true, 2.0, -9.0), silu_of_two * -2.0);            // up clamped below
  EXPECT_DOUBLE_EQ(activate(clamped, true, -5.0, 1.0), -5.0 / (1.0 + std::exp(5.0)));  // gate is not
  EXPECT_DOUBLE_EQ(activate(clamped, false, 0.0, 5.0), silu_of_two);
  const Activation oai{ActivationKind::swiglu_oai, 1.5, 2.0};
  EXPECT_DOUBLE_EQ(activate(oai, true, 5.0, 9.0), 2.0 / (1.0 + std::exp(-3.0)) * 3.0);
  EXPECT_DOUBLE_EQ(activate(oai, true, 1.0, -9.0), 1.0 / (1.0 + std::exp(-1.5)) * -1.0);
  EXPECT_DOUBLE_EQ(activate(oai, true, 1.0, -1.0), 0.0);
  EXPECT_DOUBLE_EQ(activate(oai, false, 0.0, 5.0), 2.0 / (1.0 + std::exp(-3.0)));
  EXPECT_TRUE(std::isnan(activate({ActivationKind::situ, 0, 0}, true, 1.0, 1.0)));
}

Problem small_problem(const WeightSpec& weights) {
  Problem problem;
  problem.experts = problem.experts_global = 5;
  problem.top_k = 2;
  problem.hidden = 44;
  problem.intermediate = 38;
  problem.weights = weights;
  return problem;
}

void expect_equal_to_naive(const Problem& problem, const std::string& name) {
  const Layer layer = make_layer(problem, 1);
  const auto input = random_input(9, problem.hidden, 2);
  const Routing routing = random_routing(problem, 9, RoutingKind::uniform, 3);
  const auto output = reference_layer(problem, layer, input, routing);
  ASSERT_TRUE(output) << name << ": " << output.error().what;
  const auto want = naive_layer(problem, layer, input, routing);
  double largest = 0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  ASSERT_GT(largest, 0.0) << name;
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR((*output)[i], want[i], 3e-7 * largest) << name << " " << i;
}

TEST(ReferenceLayer, EveryFormatAndSizesThatDivideNothing) {
  for (const WeightSpec& spec :
       {WeightSpec::bf16(), WeightSpec::fp16(), WeightSpec::fp8_tensor(), WeightSpec::fp8_channel(),
        WeightSpec::fp8_block(16, 24), WeightSpec::mxfp8(), WeightSpec::nvfp4(), WeightSpec::mxfp4(),
        WeightSpec::int4(20), WeightSpec::int4(16, true)})
    expect_equal_to_naive(small_problem(spec), describe(spec));
}

TEST(ReferenceLayer, BiasesWeightOnInputAndNoGate) {
  for (int bits = 0; bits < 8; ++bits) {
    Problem problem = small_problem(WeightSpec::bf16());
    problem.bias = (bits & 1) != 0;
    problem.gated = (bits & 2) != 0;
    problem.router.weight_on_input = (bits & 4) != 0;
    problem.activation.kind = problem.gated ? ActivationKind::swiglu_oai : ActivationKind::relu2;
    problem.activation.limit = 1.0;
    expect_equal_to_naive(problem, std::to_string(bits));
  }
}

TEST(ReferenceLayer, ByHand) {
  // One expert, H = 2, I = 1: up reads x0 + x1, relu², down writes (1, -2) of it. Weight 0.5, bias 1 on up.
  Problem problem;
  problem.experts = problem.experts_global = 1;
  problem.top_k = 2;
  problem.hidden = 2;
  problem.intermediate = 1;
  problem.gated = false;
  problem.bias = true;
  problem.activation.kind = ActivationKind::relu2;
  Layer layer;
  const std::uint16_t one = float_to_bf16(1.0F), minus_two = float_to_bf16(-2.0F);
  layer.up = read_stack("803f803f", "", 1, 1, 2);
  layer.up.bias = {1.0F};
  layer.down = read_stack("803f00c0", "", 1, 2, 1);
  layer.down.bias = {0.0F, 10.0F};
  const std::vector<std::uint16_t> input = {one, one, one, minus_two, minus_two, minus_two};
  // Token 0 uses the expert twice, token 1 once, token 2 not at all.
  const Routing routing{3, 2, {0, 0, -1, 0, -1, -1}, {0.5F, 0.25F, 100.0F, 1.0F, 1.0F, 1.0F}};
  const auto output = reference_layer(problem, layer, input, routing);
  ASSERT_TRUE(output);
  // Token 0: (1 + 1 + 1)² = 9 -> (9, -18 + 10) times 0.75. Token 1: (1 - 2 + 1)² = 0 -> (0, 10).
  EXPECT_THAT(*output, ElementsAre(6.75F, -6.0F, 0.0F, 10.0F, 0.0F, 0.0F));
  problem.router.weight_on_input = true;
  const auto on_input = reference_layer(problem, layer, input, routing);
  ASSERT_TRUE(on_input);
  // (0.5 · 2 + 1)² = 4 -> (4, 2) and (0.25 · 2 + 1)² = 2.25 -> (2.25, 5.5): biases are not weighted.
  EXPECT_THAT(*on_input, ElementsAre(6.25F, 7.5F, 0.0F, 10.0F, 0.0F, 0.0F));
}

TEST(ReferenceLayer, OnlyTokens) {
  const Problem problem = small_problem(WeightSpec::nvfp4());
  const Layer layer = make_layer(problem, 4);
  const auto input = random_input(12, problem.hidden, 5);
  const Routing routing = random_routing(problem, 12, RoutingKind::power_law, 6);
  const auto all = reference_layer(problem, layer, input, routing);
  const std::vector<std::int64_t> only = {11, 0, 7, 7};
  const auto some = reference_layer(problem, layer, input, routing, only);
  ASSERT_TRUE(all && some);
  for (std::int64_t token = 0; token < 12; ++token)
    for (std::int64_t column = 0; column < problem.hidden; ++column) {
      const auto i = static_cast<std::size_t>(token * problem.hidden + column);
      const bool wanted = std::find(only.begin(), only.end(), token) != only.end();
      ASSERT_EQ((*some)[i], wanted ? (*all)[i] : 0.0F) << token;
    }
}

TEST(ReferenceLayer, HostileRoutings) {
  const Problem problem = small_problem(WeightSpec::fp8_block(16, 16));
  const Layer layer = make_layer(problem, 7);
  for (const auto& [name, routing] : hostile_routings(problem, 8)) {
    const auto input = random_input(routing.tokens, problem.hidden, 9);
    const auto output = reference_layer(problem, layer, input, routing);
    ASSERT_TRUE(output) << name << ": " << output.error().what;
    const auto want = naive_layer(problem, layer, input, routing);
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR((*output)[i], want[i], 1e-5) << name;
    if (routing.pairs() == 0) {
      EXPECT_THAT(*output, Each(0.0F)) << name;
    }
  }
}

TEST(ReferenceLayer, NoTokens) {
  const Problem problem = small_problem(WeightSpec::bf16());
  const auto output = reference_layer(problem, make_layer(problem, 1), {}, Routing{0, 2, {}, {}});
  ASSERT_TRUE(output);
  EXPECT_TRUE(output->empty());
}

class ReferenceErrors : public ::testing::Test {
 protected:
  /// The error of the call as it stands.
  [[nodiscard]] std::string what() const {
    const auto output = reference_layer(problem_, layer_, input_, routing_, only_);
    return output ? "no error" : output.error().what;
  }

  Problem problem_ = small_problem(WeightSpec::bf16());
  Layer layer_ = make_layer(problem_, 1);
  std::vector<std::uint16_t> input_ = random_input(3, problem_.hidden, 1);
  Routing routing_ = random_routing(problem_, 3, RoutingKind::uniform, 1);
  std::vector<std::int64_t> only_;
};

TEST_F(ReferenceErrors, Routing) {
  EXPECT_EQ(what(), "no error");
  routing_.ids[5] = 5;
  EXPECT_THAT(what(), HasSubstr("token 2 goes to expert 5; this device holds 0 to 4"));
  routing_.ids[5] = -2;
  EXPECT_THAT(what(), HasSubstr("token 2 goes to expert -2"));
  routing_.ids[5] = 0;
  routing_.weights[4] = std::nanf("");
  EXPECT_THAT(what(), HasSubstr("token 2 has the routing weight nan"));
  routing_.ids[4] = -1;  // nobody reads that weight now
  EXPECT_EQ(what(), "no error");
  routing_.ids.pop_back();
  EXPECT_THAT(what(), HasSubstr("3 x 2 with 5 ids and 6 weights"));
  routing_.tokens = -3;
  EXPECT_THAT(what(), HasSubstr("-3 x 2"));
}

TEST_F(ReferenceErrors, InputAndTokens) {
  only_ = {0, 3};
  EXPECT_THAT(what(), HasSubstr("token 3 is asked for; there are 3"));
  only_ = {-1};
  EXPECT_THAT(what(), HasSubstr("token -1"));
  only_ = {};
  input_.pop_back();
  EXPECT_THAT(what(), HasSubstr("131 input values for 3 tokens of 44"));
}

TEST_F(ReferenceErrors, Layer) {
  problem_.activation.kind = ActivationKind::situ;
  EXPECT_THAT(what(), HasSubstr("situ"));
  problem_.activation.kind = ActivationKind::silu;
  problem_.intermediate = 40;
  EXPECT_THAT(what(), HasSubstr("gate projection is 38 x 44, not 40 x 44"));
  problem_.intermediate = 38;
  problem_.bias = true;
  EXPECT_THAT(what(), HasSubstr("gate projection has 0 biases, not 190"));
  problem_.bias = false;
  problem_.experts = 4;
  EXPECT_THAT(what(), HasSubstr("5 experts, not 4"));
  problem_.experts = 0;
  EXPECT_THAT(what(), HasSubstr("0 experts on this device"));
  problem_.experts = 5;
  layer_.down = {};
  EXPECT_THAT(what(), HasSubstr("down projection has 0 experts"));
}

TEST(ReferenceMlp, Errors) {
  const auto matrix = quantize(WeightSpec::bf16(), std::vector<float>(12, 1.0F), 3, 4);
  const auto down = quantize(WeightSpec::bf16(), std::vector<float>(12, 1.0F), 4, 3);
  ASSERT_TRUE(matrix && down);
  const MatrixView wrong = down->view();
  const std::vector<std::uint16_t> input(8);
  EXPECT_TRUE(reference_mlp({}, nullptr, matrix->view(), down->view(), input, 2));
  EXPECT_THAT(reference_mlp({}, &wrong, matrix->view(), down->view(), input, 2).error().what,
              HasSubstr("gate projection is 4 x 3, not 3 x 4"));
  EXPECT_THAT(reference_mlp({}, nullptr, matrix->view(), matrix->view(), input, 2).error().what, HasSubstr("down"));
  EXPECT_THAT(reference_mlp({}, nullptr, matrix->view(), down->view(), input, 3).error().what,
              HasSubstr("8 input values for 3 tokens of 4"));
  EXPECT_FALSE(reference_mlp({}, nullptr, {}, down->view(), input, 2));
  EXPECT_FALSE(reference_mlp({ActivationKind::situ, 0, 0}, nullptr, matrix->view(), down->view(), input, 2));
}

TEST(RandomInput, IsStandardNormal) {
  const auto input = random_input(100, 1000, 1);
  EXPECT_EQ(input, random_input(100, 1000, 1));
  EXPECT_NE(input, random_input(100, 1000, 2));
  double sum = 0, squares = 0, fourths = 0;
  int beyond_two = 0;
  for (const std::uint16_t bits : input) {
    const double x = static_cast<double>(bf16_to_float(bits));
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    beyond_two += std::abs(x) > 2.0 ? 1 : 0;
  }
  EXPECT_NEAR(sum / 1e5, 0.0, 0.016);  // five standard deviations
  EXPECT_NEAR(squares / 1e5, 1.0, 0.022);
  EXPECT_NEAR(fourths / 1e5, 2.925, 0.15);  // 3 - 6 / (5 · 16)
  EXPECT_NEAR(beyond_two, 4550, 340);
}

}  // namespace
}  // namespace moetune
