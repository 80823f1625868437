#include "cpu/cpu_backend.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "cpu/each_target.h"
#include "cpu/register.h"
#include "moe/reference.h"
#include "moe/test_layer.h"

namespace moetune {
namespace {

constexpr std::uint16_t kPoison = 0x7fc1;  // a NaN

Target three_cores() {
  Target target = probe_cpu();
  target.cores = 3;  // so that threads share a processor on small machines, too
  return target;
}

const Registry& registry() {
  static const Registry all = [] {
    Registry filled;
    register_cpu(filled);
    return filled;
  }();
  return all;
}

/// Sizes that no vector length divides, with the last block of columns and of rows cut off wherever the format lets it.
struct FormatCase {
  WeightSpec spec;
  std::int64_t hidden = 0, intermediate = 0;
};

std::vector<FormatCase> format_cases() {
  return {{WeightSpec::bf16(), 203, 77},
          {WeightSpec::bf16(), 1, 1},
          {WeightSpec::fp16(), 131, 90},
          {WeightSpec::fp8_tensor(), 161, 99},
          {WeightSpec::fp8_channel(), 75, 201},
          {WeightSpec::fp8_block(), 203, 301},
          {WeightSpec::fp8_block(16, 64), 200, 150},
          {WeightSpec::fp8_block(100, 12), 130, 70},  // a scale changes within a vector
          {WeightSpec::mxfp8(), 210, 75},
          {WeightSpec::mxfp8(), 32, 96},
          {WeightSpec::nvfp4(), 208, 98},
          {WeightSpec::nvfp4(), 16, 272},
          {WeightSpec::mxfp4(), 224, 106},
          {WeightSpec::mxfp4(), 150, 34},
          {WeightSpec::int4(128), 200, 140},
          {WeightSpec::int4(128, true), 300, 96},
          {WeightSpec::int4(32, true), 192, 80},
          {WeightSpec::int4(32), 130, 66},
          {WeightSpec::int4(64, true), 110, 250},
          {WeightSpec::int4(20), 60, 90}};
}

struct LayerCase {
  std::string_view name;
  bool gated, bias, weight_on_input;
  ActivationKind activation;
};
constexpr std::array<LayerCase, 4> kLayerCases = {{{"silu", true, false, false, ActivationKind::silu},
                                                   {"gpt-oss", true, true, false, ActivationKind::swiglu_oai},
                                                   {"relu2, not gated", false, false, false, ActivationKind::relu2},
                                                   {"weight on input", true, true, true, ActivationKind::silu}}};

Problem make_problem(const FormatCase& format, const LayerCase& layer) {
  Problem problem;
  problem.model = "test";
  problem.experts = problem.experts_global = 5;
  problem.top_k = 2;
  problem.hidden = format.hidden;
  problem.intermediate = format.intermediate;
  problem.gated = layer.gated;
  problem.bias = layer.bias;
  problem.activation.kind = layer.activation;
  problem.router.weight_on_input = layer.weight_on_input;
  problem.weights = format.spec;
  return problem;
}

/// A call with its reference.
struct CheckedCall {
  CheckedCall(const Problem& of, const Layer& layer, Routing chosen, std::uint64_t seed)
      : problem(of), routing(std::move(chosen)), input(random_input(routing.tokens, of.hidden, seed)) {
    auto computed = reference_layer(problem, layer, input, routing);
    EXPECT_TRUE(computed);
    if (computed) reference = *std::move(computed);
  }

  void check(Session& session) const {
    std::vector<std::uint16_t> output(input.size(), kPoison);
    const auto status = session.run({input, &routing, output});
    ASSERT_TRUE(status) << status.error().what;
    const Comparison result = compare_output(output, reference, problem.hidden, layer_tolerance(problem));
    EXPECT_TRUE(result.within) << "relative error " << result.relative_error << ", tolerance " << result.tolerance
                               << ", worst " << result.worst_error << ": " << result.worst;
  }

  const Problem& problem;
  Routing routing;
  std::vector<std::uint16_t> input;
  std::vector<float> reference;
};

/// The default config and a few others of the space, other ones for every `seed`.
std::vector<Config> some_configs(const Backend& backend, const Problem& problem, std::int64_t tokens, std::size_t count,
                                 std::uint64_t seed) {
  const Target target = three_cores();
  std::vector<Config> all = backend.space(problem, target, tokens).all();
  std::vector<Config> chosen = {backend.default_config(problem, target, tokens)};
  SplitMix64 random(seed);
  while (chosen.size() < count) chosen.push_back(all[random.below(static_cast<std::uint32_t>(all.size()))]);
  return chosen;
}

/// Every call on every target by every backend with some configs.
void check_calls(const Problem& problem, const Layer& layer, std::span<const std::unique_ptr<CheckedCall>> calls,
                 std::size_t configs) {
  static std::uint64_t seed = 0;
  for_each_target([&] {
    for (const auto& backend : registry().backends()) {
      ASSERT_TRUE(backend->why_not(problem, three_cores()).empty());
      auto session = backend->open(problem, layer, three_cores());
      ASSERT_TRUE(session);
      for (const auto& call : calls)
        for (const Config& config : some_configs(*backend, problem, call->routing.tokens, configs, ++seed)) {
          SCOPED_TRACE(fmt::format("{} {}, {} tokens", backend->id(), describe(config), call->routing.tokens));
          const auto status = (*session)->configure(config, call->routing.tokens);
          ASSERT_TRUE(status) << status.error().what;
          call->check(**session);
        }
    }
  });
}

class CpuFormats : public testing::TestWithParam<FormatCase> {};

TEST_P(CpuFormats, EqualTheReference) {
  for (const LayerCase& layer_case : kLayerCases) {
    SCOPED_TRACE(layer_case.name);
    const Problem problem = make_problem(GetParam(), layer_case);
    const Layer layer = make_layer(problem, 11);
    std::vector<std::unique_ptr<CheckedCall>> calls;
    for (const std::int64_t tokens : {0, 1, 3, 17, 64})
      calls.push_back(std::make_unique<CheckedCall>(problem, layer,
                                                    random_routing(problem, tokens, RoutingKind::uniform, 3),
                                                    static_cast<std::uint64_t>(tokens)));
    check_calls(problem, layer, calls, 3);
  }
}

TEST_P(CpuFormats, SurviveHostileRoutings) {
  const Problem problem = make_problem(GetParam(), kLayerCases[1]);
  const Layer layer = make_layer(problem, 12);
  std::vector<std::unique_ptr<CheckedCall>> calls;
  for (const auto& [name, routing] : hostile_routings(problem, 5))
    calls.push_back(std::make_unique<CheckedCall>(problem, layer, routing, 9));
  check_calls(problem, layer, calls, 1);
}

std::string format_name(const testing::TestParamInfo<FormatCase>& info) {
  std::string name = fmt::format("{} {} x {}", describe(info.param.spec), info.param.hidden, info.param.intermediate);
  if (info.param.spec.zero_point) name += " zero points";
  for (char& letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, CpuFormats, testing::ValuesIn(format_cases()), format_name);

TEST(CpuBackend, AllConfigsOfASpaceAgree) {
  const Problem problem = make_problem({WeightSpec::nvfp4(), 160, 96}, kLayerCases[0]);
  const Layer layer = make_layer(problem, 13);
  const CheckedCall call(problem, layer, random_routing(problem, 19, RoutingKind::one_hot, 4), 5);
  for (const auto& backend : registry().backends()) {
    auto session = backend->open(problem, layer, three_cores());
    ASSERT_TRUE(session);
    for (const Config& config : backend->space(problem, three_cores(), 19).all()) {
      SCOPED_TRACE(backend->id() + " " + describe(config));
      ASSERT_TRUE((*session)->configure(config, 19));
      call.check(**session);
    }
  }
}

TEST(CpuBackend, ManyPairsOfOneExpert) {
  // More than a thread takes at a time.
  const Problem problem = make_problem({WeightSpec::fp8_block(), 40, 24}, kLayerCases[1]);
  const Layer layer = make_layer(problem, 14);
  Routing routing{1500, 2, std::vector<std::int32_t>(3000, 4), std::vector<float>(3000, 0.5F)};
  const CheckedCall call(problem, layer, routing, 5);
  for (const auto& backend : registry().backends()) {
    auto session = backend->open(problem, layer, three_cores());
    ASSERT_TRUE((*session)->configure(backend->default_config(problem, three_cores(), 1500), 1500));
    call.check(**session);
  }
}

TEST(CpuBackend, DefaultConfigsAreInTheirSpaces) {
  for (const std::int64_t cores : {1, 2, 6, 96})
    for (const std::int64_t tokens : {1, 2, 3, 16, 100, 4096}) {
      Target target = three_cores();
      target.cores = cores;
      for (const auto& backend : registry().backends())
        for (const auto& format : format_cases()) {
          const Problem problem = make_problem(format, kLayerCases[0]);
          const Config config = backend->default_config(problem, target, tokens);
          EXPECT_TRUE(backend->space(problem, target, tokens).contains(config)) << backend->id() << describe(config);
        }
    }
}

TEST(CpuBackend, EveryValueOfEveryAxisIsAdmittedSomewhere) {
  const Problem problem = make_problem({WeightSpec::bf16(), 64, 64}, kLayerCases[0]);
  for (const auto& backend : registry().backends()) {
    const Space space = backend->space(problem, three_cores(), 64);
    const auto all = space.all();
    for (const Axis& axis : space.axes) {
      EXPECT_FALSE(axis.help.empty());
      for (const std::int64_t value : axis.values)
        EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Config& c) { return c.get(axis.name) == value; }))
            << backend->id() << " " << axis.name << "=" << value;
    }
  }
}

TEST(CpuBackend, WhyNotGivesEveryReason) {
  Problem problem = make_problem({WeightSpec::nvfp4(), 63, 31}, kLayerCases[0]);
  problem.activation.kind = ActivationKind::situ;
  problem.top_k = 0;
  Target target = three_cores();
  target.kind = TargetKind::gpu;
  for (const auto& backend : registry().backends()) {
    const Reasons reasons = backend->why_not(problem, target);
    const auto count = [&](ReasonCode code) {
      return std::count_if(reasons.begin(), reasons.end(), [&](const Reason& reason) { return reason.code == code; });
    };
    EXPECT_EQ(count(ReasonCode::arch), 1);
    EXPECT_EQ(count(ReasonCode::activation_function), 1);
    EXPECT_EQ(count(ReasonCode::routing), 1);
    EXPECT_EQ(count(ReasonCode::shape), 2);
    for (const Reason& reason : reasons) {
      EXPECT_FALSE(reason.have.empty());
      EXPECT_FALSE(reason.need.empty());
      EXPECT_FALSE(reason.source.empty());
    }
  }
}

TEST(CpuBackend, WhyNotCountsTheMemory) {
  Problem problem = make_problem({WeightSpec::bf16(), 4096, 4096}, kLayerCases[0]);
  Target target = three_cores();
  target.memory_bytes = expert_bytes(problem) * problem.experts - 1;
  const Reasons reasons = registry().backends().front()->why_not(problem, target);
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_EQ(reasons[0].code, ReasonCode::memory);
  target.memory_bytes = expert_bytes(problem) * problem.experts;
  EXPECT_TRUE(registry().backends().front()->why_not(problem, target).empty());
}

TEST(CpuBackend, RevisionsAreContentHashes) {
  for (const auto& backend : registry().backends()) {
    EXPECT_EQ(backend->revision().size(), 16U);
    EXPECT_EQ(backend->revision().find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_EQ(registry().find(backend->id()), backend.get());
    EXPECT_FALSE(backend->summary().empty());
  }
}

TEST(CpuSession, KeepsItsConfigWhenAnotherIsRefused) {
  const Problem problem = make_problem({WeightSpec::mxfp4(), 64, 64}, kLayerCases[0]);
  const Layer layer = make_layer(problem, 15);
  const CheckedCall call(problem, layer, random_routing(problem, 4, RoutingKind::uniform, 4), 5);
  const CheckedCall longer(problem, layer, random_routing(problem, 5, RoutingKind::uniform, 4), 5);
  for (const auto& backend : registry().backends()) {
    auto session = backend->open(problem, layer, three_cores());
    ASSERT_TRUE(session);
    std::vector<std::uint16_t> output(call.input.size());
    EXPECT_FALSE((*session)->run({call.input, &call.routing, output}));  // not configured
    const Config config = backend->default_config(problem, three_cores(), 4);
    ASSERT_TRUE((*session)->configure(config, 4));
    Config foreign = config;
    foreign.values.front().second = 12345;
    const auto refused = (*session)->configure(foreign, 4);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().what.find("12345"), std::string::npos);
    EXPECT_FALSE((*session)->configure({}, 4));
    call.check(**session);
    std::vector<std::uint16_t> longer_output(longer.input.size());
    EXPECT_FALSE((*session)->run({longer.input, &longer.routing, longer_output}));
    call.check(**session);
  }
}

TEST(CpuSession, TimesEachCallOnce) {
  const Problem problem = make_problem({WeightSpec::bf16(), 64, 64}, kLayerCases[0]);
  const Layer layer = make_layer(problem, 16);
  const CheckedCall call(problem, layer, random_routing(problem, 4, RoutingKind::uniform, 4), 5);
  auto session = registry().backends().front()->open(problem, layer, three_cores());
  ASSERT_TRUE((*session)->configure(registry().backends().front()->default_config(problem, three_cores(), 4), 4));
  std::vector<std::uint16_t> output(call.input.size(), kPoison);
  const Call view{call.input, &call.routing, output};
  const std::vector<Call> calls(3, view);
  const auto times = (*session)->time(calls);
  ASSERT_TRUE(times);
  ASSERT_EQ(times->size(), 3U);
  for (const double us : *times) EXPECT_GT(us, 0.0);
}

}  // namespace
}  // namespace moetune
