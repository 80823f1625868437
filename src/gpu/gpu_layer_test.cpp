// On a device: every backend, format and activation against the reference, singly and in a replayed graph.
#include <gtest/gtest.h>

#include "base/json.h"
#include "gpu/register.h"
#include "model/layer.h"
#include "moe/reference.h"

namespace moetune {
namespace {

struct Shape {
  std::int64_t experts, top_k, hidden, intermediate;
};

Problem problem_of(const WeightSpec& spec, const Shape& shape, ActivationKind kind, bool gated, bool on_input) {
  Problem p;
  p.experts = p.experts_global = shape.experts;
  p.top_k = shape.top_k;
  p.hidden = shape.hidden;
  p.intermediate = shape.intermediate;
  p.gated = gated;
  p.activation.kind = kind;
  p.router.weight_on_input = on_input;
  p.weights = spec;
  return p;
}

void expect_right(const Problem& problem, const Layer& layer, const Routing& routing,
                  std::span<const std::uint16_t> input, std::span<const std::uint16_t> output,
                  const std::string& what) {
  const auto reference = reference_layer(problem, layer, input, routing);
  ASSERT_TRUE(reference) << what;
  const Comparison c = compare_output(output, *reference, problem.hidden, layer_tolerance(problem));
  EXPECT_TRUE(c.finite && c.within) << what << ": error " << c.relative_error << ", at most " << c.tolerance << "; "
                                    << c.worst;
}

void run_and_expect_right(Session& session, const Problem& problem, const Layer& layer, const Routing& routing,
                          const std::string& what) {
  const auto input = random_input(routing.tokens, problem.hidden, 3);
  std::vector<std::uint16_t> output(input.size(), 0x7FC1);
  const auto status = session.run({input, &routing, output});
  ASSERT_TRUE(status) << what << ": " << status.error().what;
  expect_right(problem, layer, routing, input, output, what);
}

/// Several calls of different sizes in one graph, replayed: the last one's output is right.
void time_and_expect_right(Session& session, const Problem& problem, const Layer& layer, const std::string& what) {
  std::vector<Routing> routings;
  std::vector<std::vector<std::uint16_t>> inputs;
  for (const std::int64_t tokens : {9, 0, 17}) {
    routings.push_back(random_routing(problem, tokens, RoutingKind::power_law, 5));
    inputs.push_back(random_input(tokens, problem.hidden, 8));
  }
  std::vector<std::uint16_t> output(inputs.back().size(), 0x7FC1);
  std::vector<Call> calls;
  for (std::size_t i = 0; i < routings.size(); ++i)
    calls.push_back({inputs[i], &routings[i], std::span(output).first(inputs[i].size())});
  for (int round = 0; round < 2; ++round) {
    const auto times = session.time(calls);
    ASSERT_TRUE(times) << what << ": " << times.error().what;
    ASSERT_EQ(times->size(), calls.size());
    for (const double us : *times) EXPECT_GT(us, 0) << what;
    expect_right(problem, layer, routings.back(), inputs.back(), output, what + ", in a graph");
  }
}

class GpuFormat : public ::testing::TestWithParam<WeightSpec> {
 protected:
  void SetUp() override {
    register_gpu(registry_);
    const auto targets = registry_.find(TargetKind::gpu)->targets();
    ASSERT_FALSE(targets.empty()) << "no GPU here";
    target_ = targets.front();
  }
  void check(const Problem& problem, const std::vector<std::int64_t>& sizes, std::size_t configs) {
    const Layer layer = std::move(random_layer(problem, 5).value());
    for (const auto& backend : registry_.backends()) {
      ASSERT_TRUE(backend->why_not(problem, target_).empty()) << backend->id();
      auto session = backend->open(problem, layer, target_);
      ASSERT_TRUE(session) << session.error().what;
      const auto all = backend->space(problem, target_, 16).all();
      std::vector<Config> chosen = {backend->default_config(problem, target_, 1),
                                    backend->default_config(problem, target_, 4096)};
      for (std::size_t i = 0; i < configs; ++i)
        chosen.push_back(all[(all.size() - 1) * i / std::max<std::size_t>(configs - 1, 1)]);
      for (const auto& config : chosen) {
        const std::string what = backend->id() + " " + describe(problem.weights) + " " + describe(config);
        const auto configured = (*session)->configure(config, 256);
        ASSERT_TRUE(configured) << what << ": " << configured.error().what;
        for (const std::int64_t tokens : sizes)
          run_and_expect_right(**session, problem, layer, random_routing(problem, tokens, RoutingKind::uniform, 11),
                               what + ", tokens " + std::to_string(tokens));
        time_and_expect_right(**session, problem, layer, what);
      }
      for (const auto& hostile : hostile_routings(problem, 4))
        run_and_expect_right(**session, problem, layer, hostile.routing,
                             backend->id() + " " + std::string(hostile.name));
    }
  }
  Registry registry_;
  Target target_;
};

TEST_P(GpuFormat, EqualsTheReference) {
  check(problem_of(GetParam(), {8, 3, 256, 192}, ActivationKind::silu, true, false), {0, 1, 3, 17, 64, 150}, 3);
}
TEST_P(GpuFormat, SizesThatDoNotDivide) {
  check(problem_of(GetParam(), {6, 2, 352, 160}, ActivationKind::swiglu_oai, true, false), {1, 5, 20}, 1);
}
TEST_P(GpuFormat, UngatedAndWeightOnInput) {
  check(problem_of(GetParam(), {6, 2, 128, 192}, ActivationKind::relu2, false, false), {2, 9}, 1);
  check(problem_of(GetParam(), {6, 2, 128, 64}, ActivationKind::gelu_tanh, true, true), {2, 9}, 1);
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuFormat,
                         ::testing::Values(WeightSpec::bf16(), WeightSpec::fp8_tensor(), WeightSpec::fp8_channel(),
                                           WeightSpec::fp8_block(128, 128), WeightSpec::fp8_block(32, 64),
                                           WeightSpec::mxfp8(), WeightSpec::nvfp4(), WeightSpec::mxfp4(),
                                           WeightSpec::int4(32), WeightSpec::int4(128), WeightSpec::int4(32, true)),
                         [](const auto& instance) { return "spec" + std::to_string(instance.index); });

TEST(GpuLayer, ManyTokens) {
  Registry registry;
  register_gpu(registry);
  const Target target = registry.find(TargetKind::gpu)->targets().front();
  const Problem problem = problem_of(WeightSpec::nvfp4(), {32, 4, 256, 128}, ActivationKind::silu, true, false);
  const Layer layer = std::move(random_layer(problem, 5).value());
  for (const auto& backend : registry.backends()) {
    auto session = std::move(backend->open(problem, layer, target).value());
    ASSERT_TRUE(session->configure(backend->default_config(problem, target, 20000), 20000));
    run_and_expect_right(*session, problem, layer, random_routing(problem, 20000, RoutingKind::power_law, 2),
                         backend->id());
  }
}

TEST(GpuLayer, CeilingsAreMeasured) {
  Registry registry;
  register_gpu(registry);
  const auto targets = registry.find(TargetKind::gpu)->targets();
  const auto ceilings = registry.find(TargetKind::gpu)->measure(targets.front());
  ASSERT_TRUE(ceilings) << ceilings.error().what;
  EXPECT_GT(ceilings->read_gb_s, 0.5 * targets.front().memory_gb_s.value_or(0));
  EXPECT_LT(ceilings->read_gb_s, 1.05 * targets.front().memory_gb_s.value_or(1e9));
  EXPECT_GT(ceilings->bf16_tflops, 0.3 * targets.front().bf16_tflops.value_or(0));
  EXPECT_LT(ceilings->bf16_tflops, 1.05 * targets.front().bf16_tflops.value_or(1e9));
}

}  // namespace
}  // namespace moetune
