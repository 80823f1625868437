#include "cpu/row_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/each_target.h"
#include "formats/convert.h"
#include "moe/random.h"
#include "moe/reference.h"

namespace moetune {
namespace {

constexpr std::int64_t kCount = 1003;  // not a multiple of any vector

/// From -30 to 30, denser around 0.
std::vector<float> spread(float offset) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const float x = static_cast<float>(i) / 501.0F - 1.0F + offset;
    values.push_back(30.0F * x * x * x);
  }
  return values;
}

TEST(RowMath, ActivationsFollowTheReference) {
  const auto gate = spread(0), up = spread(0.01F);
  const std::vector<float> gate_bias(kCount, 0.25F), up_bias(kCount, -0.5F);
  for_each_target([&] {
    const RowMath math = row_math();
    for (std::size_t kind = 0; kind + 1 < EnumNames<ActivationKind>::names.size(); ++kind)
      for (const bool gated : {false, true}) {
        const Activation activation{static_cast<ActivationKind>(kind), 1.702, 7.0};
        SCOPED_TRACE(to_string(activation.kind));
        std::vector<float> out(kCount + 1, 123.0F);
        const ProjectedRow row{gated ? gate.data() : nullptr, up.data(), gated ? gate_bias.data() : nullptr,
                               up_bias.data(), 0.75F};
        math.activate(activation, row, kCount, out.data());
        EXPECT_EQ(out.back(), 123.0F);
        for (std::size_t i = 0; i < kCount; ++i) {
          const double g = 0.75 * static_cast<double>(gate[i]) + 0.25, u = 0.75 * static_cast<double>(up[i]) - 0.5;
          const double expected = activate(activation, gated, g, u);
          const double scale = std::max({1.0, std::abs(g), std::abs(u)});
          ASSERT_NEAR(static_cast<double>(out[i]), expected, 1e-6 * scale * scale * scale) << "g " << g << ", u " << u;
        }
      }
  });
}

TEST(RowMath, ExtremeInputsStayFiniteWhereTheFunctionDoes) {
  const std::vector<float> extreme = {-3e38F, -1e4F, -200.0F, 200.0F, 1e4F};
  const std::vector<float> ones(extreme.size(), 1.0F);
  for_each_target([&] {
    const RowMath math = row_math();
    for (const auto kind : {ActivationKind::silu, ActivationKind::gelu_tanh, ActivationKind::gelu,
                            ActivationKind::silu_clamped, ActivationKind::swiglu_oai}) {
      std::vector<float> out(extreme.size());
      math.activate({kind, 1.702, 7.0}, {extreme.data(), ones.data(), nullptr, nullptr, 1.0F}, std::ssize(extreme),
                    out.data());
      for (std::size_t i = 1; i < extreme.size(); ++i) EXPECT_TRUE(std::isfinite(out[i])) << to_string(kind) << i;
      EXPECT_NEAR(out[2], 0.0F, 1e-6F) << to_string(kind);
    }
  });
}

TEST(RowMath, SituIsNotANumber) {
  const std::vector<float> ones(5, 1.0F);
  std::vector<float> out(5);
  row_math().activate({ActivationKind::situ, 1, 1}, {nullptr, ones.data(), nullptr, nullptr, 1.0F}, 5, out.data());
  for (const float value : out) EXPECT_TRUE(std::isnan(value));
}

TEST(RowMath, RoundsToBf16LikeTheFormat) {
  SplitMix64 random(7);
  std::vector<float> values(kCount);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
  const std::uint32_t special[] = {0x7f800000U, 0xff800000U, 0x7fffffffU, 0xffffffffU, 0x7f800001U, 0x3f808000U,
                                   0x3f818000U, 0x7f7fffffU, 0x80000000U, 0x00000001U, 0x00008000U};
  for (std::size_t i = 0; i < std::size(special); ++i) values[i] = std::bit_cast<float>(special[i]);
  for_each_target([&] {
    std::vector<std::uint16_t> out(kCount + 1, 77);
    row_math().to_bf16(values.data(), kCount, out.data());
    EXPECT_EQ(out.back(), 77);
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(out[i], float_to_bf16(values[i])) << std::bit_cast<std::uint32_t>(values[i]);
    std::vector<float> back(kCount);
    row_math().from_bf16(out.data(), kCount, back.data());
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::uint32_t{out[i]} << 16);
  });
}

TEST(RowMath, AccumulatesWeightedAndBiased) {
  const auto x = spread(0), bias = spread(0.5F);
  for_each_target([&] {
    for (const bool biased : {false, true}) {
      std::vector<float> sum(kCount, 2.0F);
      row_math().accumulate(x.data(), biased ? bias.data() : nullptr, 0.5F, kCount, sum.data());
      for (std::size_t i = 0; i < kCount; ++i)
        ASSERT_NEAR(sum[i], 2.0F + 0.5F * (x[i] + (biased ? bias[i] : 0.0F)), 1e-5F);
    }
  });
}

}  // namespace
}  // namespace moetune
