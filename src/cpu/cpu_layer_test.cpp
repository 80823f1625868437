#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "cpu/register.h"
#include "formats/convert.h"
#include "model/layer.h"
#include "moe/reference.h"

namespace moetune {
namespace {

struct Shape {
  const char* name;
  std::int64_t hidden, intermediate;
};

Problem problem_of(const WeightSpec& spec, const Shape& shape, ActivationKind kind, bool gated, bool bias,
                   bool on_input) {
  Problem p;
  p.experts = p.experts_global = 6;
  p.top_k = 2;
  p.hidden = shape.hidden;
  p.intermediate = shape.intermediate;
  p.gated = gated;
  p.bias = bias;
  p.activation.kind = kind;
  p.router.weight_on_input = on_input;
  p.weights = spec;
  return p;
}

/// Runs the call into a poisoned output and compares with the reference.
void expect_right(Session& session, const Problem& problem, const Layer& layer, const Routing& routing,
                  const std::string& what) {
  const auto input = random_input(routing.tokens, problem.hidden, 3);
  std::vector<std::uint16_t> output(input.size(), 0x7FC1);
  const auto status = session.run({input, &routing, output});
  ASSERT_TRUE(status) << what << ": " << status.error().what;
  const auto reference = reference_layer(problem, layer, input, routing);
  ASSERT_TRUE(reference) << what;
  const Comparison c = compare_output(output, *reference, problem.hidden, layer_tolerance(problem));
  EXPECT_TRUE(c.finite && c.within) << what << ": error " << c.relative_error << ", at most " << c.tolerance << "; "
                                    << c.worst;
}

class EveryFormat : public ::testing::TestWithParam<WeightSpec> {
 protected:
  void SetUp() override { register_cpu(registry_); }
  /// The default and the first and last config of the space.
  std::vector<Config> configs(const Backend& backend, const Problem& problem, const Target& target,
                              std::int64_t tokens) const {
    const auto all = backend.space(problem, target, tokens).all();
    return {backend.default_config(problem, target, tokens), all.front(), all[all.size() / 2], all.back()};
  }
  void check(const Problem& problem, const std::vector<std::int64_t>& sizes) {
    const Target target = probe_cpu();
    const Layer layer = std::move(random_layer(problem, 5).value());
    for (const auto& backend : registry_.backends()) {
      ASSERT_TRUE(backend->why_not(problem, target).empty()) << backend->id();
      auto session = std::move(backend->open(problem, layer, target).value());
      for (const std::int64_t tokens : sizes)
        for (const auto& config : configs(*backend, problem, target, tokens)) {
          EXPECT_TRUE(backend->space(problem, target, tokens).contains(config));
          ASSERT_TRUE(session->configure(config, tokens));
          const std::string what = backend->id() + " " + describe(problem.weights) + " " + describe(config) +
                                   ", tokens " + std::to_string(tokens);
          expect_right(*session, problem, layer, random_routing(problem, tokens, RoutingKind::uniform, 11), what);
        }
      ASSERT_TRUE(session->configure(backend->default_config(problem, target, 17), 256));
      for (const auto& hostile : hostile_routings(problem, 4))
        expect_right(*session, problem, layer, hostile.routing, backend->id() + " " + std::string(hostile.name));
    }
  }
  Registry registry_;
};

TEST_P(EveryFormat, EqualsTheReference) {
  check(problem_of(GetParam(), {"even", 256, 128}, ActivationKind::silu, true, false, false), {0, 1, 3, 17, 64});
}

TEST_P(EveryFormat, SizesThatDoNotDivideTheVector) {
  check(problem_of(GetParam(), {"ragged", 352, 160}, ActivationKind::swiglu_oai, true, true, false), {1, 5, 20});
}

TEST_P(EveryFormat, UngatedAndWeightOnInput) {
  check(problem_of(GetParam(), {"even", 128, 192}, ActivationKind::relu2, false, false, false), {2, 9});
  check(problem_of(GetParam(), {"even", 128, 64}, ActivationKind::gelu_tanh, true, true, true), {2, 9});
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat,
                         ::testing::Values(WeightSpec::bf16(), WeightSpec::fp16(), WeightSpec::fp8_tensor(),
                                           WeightSpec::fp8_channel(), WeightSpec::fp8_block(128, 128),
                                           WeightSpec::fp8_block(32, 64), WeightSpec::mxfp8(), WeightSpec::nvfp4(),
                                           WeightSpec::mxfp4(), WeightSpec::int4(32), WeightSpec::int4(128),
                                           WeightSpec::int4(32, true)),
                         [](const auto& instance) { return "spec" + std::to_string(instance.index); });

TEST(WhyNot, NamesEveryReason) {
  Registry registry;
  register_cpu(registry);
  Problem p = problem_of(WeightSpec::nvfp4(), {"odd", 33, 64}, ActivationKind::situ, true, false, false);
  Target gpu;
  gpu.kind = TargetKind::gpu;
  gpu.name = "a GPU";
  for (const auto& backend : registry.backends()) {
    std::vector<ReasonCode> codes;
    for (const auto& reason : backend->why_not(p, gpu)) codes.push_back(reason.code);
    EXPECT_NE(std::find(codes.begin(), codes.end(), ReasonCode::arch), codes.end()) << backend->id();
    EXPECT_NE(std::find(codes.begin(), codes.end(), ReasonCode::activation_function), codes.end()) << backend->id();
    EXPECT_NE(std::find(codes.begin(), codes.end(), ReasonCode::shape), codes.end()) << backend->id();
  }
}

}  // namespace
}  // namespace moetune
