// What can be shown without a GPU: every kernel compiles for every chip that it claims, within that chip's limits, and
// nothing spills.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "gpu/register.h"
#include "gpu/sm80_decode.h"
#include "gpu/sm80_tile.h"

namespace moetune {
namespace {

Problem problem_of(const WeightSpec& spec, ActivationKind kind = ActivationKind::silu, bool gated = true) {
  Problem p;
  p.experts = p.experts_global = 64;
  p.top_k = 8;
  p.hidden = 4096;
  p.intermediate = 512;
  p.gated = gated;
  p.activation.kind = kind;
  p.weights = spec;
  return p;
}

const std::vector<WeightSpec>& formats() {
  static const std::vector<WeightSpec> all = {
      WeightSpec::bf16(),          WeightSpec::fp8_tensor(), WeightSpec::fp8_channel(), WeightSpec::fp8_block(128, 128),
      WeightSpec::mxfp8(),         WeightSpec::nvfp4(),      WeightSpec::mxfp4(),       WeightSpec::int4(128),
      WeightSpec::int4(128, true), WeightSpec::int4(32),     WeightSpec::int4(32, true)};
  return all;
}

/// A chip of that capability, by the numbers of data/gpus.toml where a product has them.
Target chip(const std::string& name) { return find_gpu(name).value(); }

class GpuCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!runtime_->compiler())
      FAIL() << runtime_->compiler().error().have
             << "\nrun scripts/install_nvrtc, configure again, and repeat the test";
  }
  /// The plan's kernels compile, fit, and spill no more than that many bytes a thread.
  void expect_compiles(const GpuBackend& backend, const Problem& problem, const Target& target, const Config& config,
                       std::int64_t spilled = 0) {
    ASSERT_TRUE(backend.space(problem, target, 16).contains(config)) << describe(config);
    const LayerPlan plan = backend.plan(problem, target, config);
    for (const auto& kernel : {plan.up, plan.down}) {
      const std::string what = backend.id() + " " + kernel.entry + " " + describe(problem.weights) + " " +
                               kernel.source.target + " " + describe(config);
      const auto compiled = (*runtime_->compiler())->compile(kernel.source);
      ASSERT_TRUE(compiled) << what << ": " << compiled.error().reason.have;
      const auto* resources = compiled->resources(kernel.entry);
      ASSERT_NE(resources, nullptr) << what;
      EXPECT_LE(resources->spill_store_bytes.value_or(0), spilled) << what;
      EXPECT_EQ(resources->max_threads, kernel.threads) << what;
      EXPECT_LE(resources->static_shared_bytes + kernel.shared_bytes, shared_limit(target)) << what;
    }
  }
  std::shared_ptr<GpuRuntime> runtime_ = std::make_shared<GpuRuntime>();
  Sm80Decode decode_{runtime_};
  Sm80Tile tile_{runtime_};
};

TEST_F(GpuCompile, EveryFormatWithTheDefaultsOnTheOldestAndTheNewest) {
  for (const char* name : {"sm_80", "sm_120"})
    for (const auto& spec : formats()) {
      const Target target = chip(name);
      const Problem problem = problem_of(spec);
      expect_compiles(decode_, problem, target, decode_.default_config(problem, target, 16));
      expect_compiles(tile_, problem, target, tile_.default_config(problem, target, 256));
    }
}

TEST_F(GpuCompile, EveryTarget) {
  for (const char* name : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"}) {
    const Target target = chip(name);
    const Problem problem = problem_of(WeightSpec::nvfp4(), ActivationKind::swiglu_oai);
    EXPECT_TRUE(decode_.why_not(problem, target).empty()) << name;
    for (const GpuBackend* backend : {static_cast<GpuBackend*>(&decode_), static_cast<GpuBackend*>(&tile_)}) {
      const auto reasons = backend->compile(problem, target);
      ASSERT_TRUE(reasons);
      for (const auto& reason : *reasons)
        ADD_FAILURE() << backend->id() << " " << name << ": " << reason.have << ", needs " << reason.need;
    }
    EXPECT_TRUE((*runtime_->compiler())->compile(ceiling_kernels(target))) << name;
  }
}

TEST_F(GpuCompile, EveryActivationGatedOrNot) {
  const Target target = chip("sm_90");
  for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh,
                                    ActivationKind::relu2, ActivationKind::silu_clamped, ActivationKind::swiglu_oai})
    for (const bool gated : {true, false}) {
      Problem problem = problem_of(WeightSpec::bf16(), kind, gated);
      problem.router.weight_on_input = !gated;
      expect_compiles(decode_, problem, target, decode_.default_config(problem, target, 1));
    }
}

TEST_F(GpuCompile, ConfigsFromAllOverTheSpace) {
  const Target target = chip("sm_86");
  for (const auto& spec : {WeightSpec::bf16(), WeightSpec::nvfp4(), WeightSpec::fp8_block(128, 128)}) {
    const Problem problem = problem_of(spec);
    for (const GpuBackend* backend : {static_cast<GpuBackend*>(&decode_), static_cast<GpuBackend*>(&tile_)}) {
      const auto all = backend->space(problem, target, 64).all();
      ASSERT_GT(all.size(), 200U) << backend->id();
      // Which configs spill is estimated (sm80_decode.cpp, sm80_tile.cpp); far from the defaults some do, a little.
      constexpr std::size_t kTried = 4, kSpilled = 32;
      for (std::size_t i = 0; i < kTried; ++i)
        expect_compiles(*backend, problem, target, all[all.size() * i / kTried], kSpilled);
    }
  }
}

TEST(GpuBackends, DefaultsAreInTheSpaceForEveryFormatChipAndSize) {
  const auto runtime = std::make_shared<GpuRuntime>();
  const Sm80Decode decode(runtime);
  const Sm80Tile tile(runtime);
  for (const char* name : {"A100", "H200", "RTX PRO 6000", "sm_86"})
    for (const auto& spec : formats())
      for (const bool gated : {true, false})
        for (const std::int64_t tokens : {1, 2, 3, 16, 256, 16384}) {
          const Target target = chip(name);
          const Problem problem = problem_of(spec, ActivationKind::silu, gated);
          const Config few = decode.default_config(problem, target, tokens),
                       many = tile.default_config(problem, target, tokens);
          EXPECT_TRUE(decode.space(problem, target, tokens).contains(few))
              << name << " " << describe(spec) << " " << describe(few);
          EXPECT_TRUE(tile.space(problem, target, tokens).contains(many))
              << name << " " << describe(spec) << " " << describe(many);
        }
}

TEST(GpuBackends, WhyNotNamesEveryReason) {
  const auto runtime = std::make_shared<GpuRuntime>();
  const Sm80Decode decode(runtime);
  Problem problem = problem_of(WeightSpec::fp8_block(48, 48), ActivationKind::situ);
  problem.hidden = 4100;
  problem.top_k = 0;
  problem.experts = 0;
  std::multiset<ReasonCode> codes;
  for (const auto& reason : decode.why_not(problem, chip("sm_75"))) {
    codes.insert(reason.code);
    EXPECT_FALSE(reason.have.empty());
    EXPECT_FALSE(reason.need.empty());
    EXPECT_FALSE(reason.source.empty());
  }
  EXPECT_EQ(codes, (std::multiset{ReasonCode::arch, ReasonCode::weight_format, ReasonCode::activation_function,
                                  ReasonCode::shape, ReasonCode::shape, ReasonCode::routing}));
  EXPECT_EQ(decode.why_not(problem_of(WeightSpec::fp16()), chip("sm_90")).front().code, ReasonCode::weight_format);
  Problem large = problem_of(WeightSpec::bf16());
  large.intermediate = 1 << 20;
  EXPECT_EQ(decode.why_not(large, chip("H200")).front().code, ReasonCode::memory);
}

}  // namespace
}  // namespace moetune
