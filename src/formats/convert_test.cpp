#include "formats/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "formats/test_fixture.h"

namespace moetune {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Equal bits, any NaN for any NaN.
void expect_same(float got, float want, const std::string& what) {
  if (std::isnan(want))
    EXPECT_TRUE(std::isnan(got)) << what << ": " << got;
  else
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want))
        << what << ": " << got << ", not " << want;
}

template <class Decode>
void expect_table(const char* name, Decode&& decode) {
  const Json fixture = read_fixture("formats/elements.json");
  const Json& table = fixture[name];
  ASSERT_GE(table.size(), 16U);
  for (std::size_t code = 0; code < table.size(); ++code)
    expect_same(decode(static_cast<std::uint8_t>(code)), table[code].is_null() ? kNan : table[code].get<float>(),
                name + std::to_string(code));
}

TEST(Convert, TablesEqualMlDtypes) {
  expect_table("e4m3", e4m3_to_float);
  expect_table("e2m1", e2m1_to_float);
  expect_table("e8m0", e8m0_to_float);
}

/// Checks float-to-code against the fixture; NaNs must be NaNs of that sign.
template <class Code, class Encode, class Decode>
void expect_rounding(const std::string& name, Encode&& encode, Decode&& decode) {
  const Json fixture = read_fixture("formats/elements.json");
  for (const Json& part : fixture["rounding"]) {
    if (part["name"].get<std::string>() != name) continue;
    const auto from = unhex<float>(part["from"]);
    const auto to = unhex<Code>(part["to"]);
    ASSERT_EQ(from.size(), to.size());
    ASSERT_GE(from.size(), 30U);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const Code got = encode(from[i]);
      if (std::isnan(from[i]))
        EXPECT_TRUE(std::isnan(decode(got))) << name << " of NaN: " << got;
      else
        EXPECT_EQ(got, to[i]) << name << " of " << from[i];
    }
    return;
  }
  FAIL() << "no rounding cases of " << name;
}

TEST(Convert, RoundingEqualsMlDtypesAndNumpy) {
  expect_rounding<std::uint16_t>("bf16", float_to_bf16, bf16_to_float);
  expect_rounding<std::uint16_t>("fp16", float_to_fp16, fp16_to_float);
  expect_rounding<std::uint8_t>("e4m3", float_to_e4m3, e4m3_to_float);
  expect_rounding<std::uint8_t>("e2m1", float_to_e2m1, e2m1_to_float);
}

TEST(Convert, EveryCodeRoundTrips) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    if (!std::isnan(bf16_to_float(bits))) {
      ASSERT_EQ(float_to_bf16(bf16_to_float(bits)), bits);
    }
    if (!std::isnan(fp16_to_float(bits))) {
      ASSERT_EQ(float_to_fp16(fp16_to_float(bits)), bits);
    }
  }
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    ASSERT_EQ(float_to_e4m3(e4m3_to_float(bits)) & 0x7f, bits & 0x7f) << code;
    ASSERT_EQ(float_to_e8m0_floor(e8m0_to_float(bits)), bits) << code;
    if (code < 16) {
      ASSERT_EQ(float_to_e2m1(e2m1_to_float(bits)), bits) << code;
    }
  }
}

TEST(Convert, Fp16ByHand) {
  EXPECT_EQ(fp16_to_float(0x3c00), 1.0F);
  EXPECT_EQ(fp16_to_float(0x0001), 0x1p-24F);
  EXPECT_EQ(fp16_to_float(0x03ff), 0x1.ff8p-15F);
  EXPECT_EQ(fp16_to_float(0x0400), 0x1p-14F);
  EXPECT_EQ(fp16_to_float(0x7bff), 65504.0F);
  EXPECT_EQ(fp16_to_float(0xfc00), -kInfinity);
  EXPECT_TRUE(std::isnan(fp16_to_float(0x7e01)));
  EXPECT_TRUE(std::signbit(fp16_to_float(0x8000)));
  EXPECT_EQ(float_to_fp16(0x1p-25F), 0);         // a tie goes to even
  EXPECT_EQ(float_to_fp16(0x1.000002p-25F), 1);  // past the tie
  EXPECT_EQ(float_to_fp16(0x1.8p-24F), 2);       // a tie goes to even
  EXPECT_EQ(float_to_fp16(65519.996F), 0x7bff);  // below half a step past the largest
  EXPECT_EQ(float_to_fp16(65520.0F), 0x7c00);
}

TEST(Convert, E4m3SaturatesAndKeepsNan) {
  EXPECT_EQ(float_to_e4m3(448.0F), 0x7e);
  EXPECT_EQ(float_to_e4m3(1e30F), 0x7e);
  EXPECT_EQ(float_to_e4m3(kInfinity), 0x7e);
  EXPECT_EQ(float_to_e4m3(-kInfinity), 0xfe);
  EXPECT_EQ(float_to_e4m3(kNan), 0x7f);
  EXPECT_EQ(float_to_e4m3(-kNan), 0xff);
  EXPECT_EQ(float_to_e4m3(0x1p-10F), 0x00);  // half of the smallest, tie to even
  EXPECT_EQ(float_to_e4m3(0x1.000002p-10F), 0x01);
  EXPECT_EQ(float_to_e4m3(-0.0F), 0x80);
}

TEST(Convert, E2m1Saturates) {
  EXPECT_EQ(float_to_e2m1(100.0F), 0x7);
  EXPECT_EQ(float_to_e2m1(-kInfinity), 0xf);
  EXPECT_EQ(float_to_e2m1(kNan) & 7, 0);
  EXPECT_EQ(e2m1_to_float(0xf5), 3.0F);  // high bits are not the element's
}

TEST(Convert, E8m0Floor) {
  EXPECT_EQ(float_to_e8m0_floor(1.0F), 127);
  EXPECT_EQ(float_to_e8m0_floor(1.99F), 127);
  EXPECT_EQ(float_to_e8m0_floor(0.99F), 126);
  EXPECT_EQ(float_to_e8m0_floor(0.0F), 0);
  EXPECT_EQ(float_to_e8m0_floor(-4.0F), 0);
  EXPECT_EQ(float_to_e8m0_floor(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_e8m0_floor(kInfinity), 254);
  EXPECT_EQ(float_to_e8m0_floor(kNan), 255);
}

/// Rounding is monotonic and to the nearest: no code lies nearer than the chosen one.
template <class Encode>
void expect_nearest(const std::vector<float>& values, Encode&& encode) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponent(-12.0F, 10.0F);
  for (int i = 0; i < 20000; ++i) {
    const float x = std::exp2(exponent(random)) * (i % 2 == 0 ? 1.0F : -1.0F);
    const double distance = std::abs(static_cast<double>(encode(x)) - static_cast<double>(x));
    for (const float value : values)
      ASSERT_LE(distance, std::abs(static_cast<double>(value) - static_cast<double>(x))) << x << " or " << value;
    const float next = x * 1.01F;
    ASSERT_LE(std::abs(encode(x)), std::abs(encode(next))) << x;
  }
}

TEST(Convert, SmallFormatsRoundToTheNearest) {
  std::vector<float> e4m3, e2m1;
  for (const float value : kE4m3Values)
    if (!std::isnan(value)) e4m3.push_back(value);
  e2m1.assign(kE2m1Values.begin(), kE2m1Values.end());
  expect_nearest(e4m3, [](float x) { return e4m3_to_float(float_to_e4m3(x)); });
  expect_nearest(e2m1, [](float x) { return e2m1_to_float(float_to_e2m1(x)); });
}

}  // namespace
}  // namespace moetune
