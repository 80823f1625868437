// Matrices against other libraries (scripts/make_fixtures.py), by hand, and by properties.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "formats/convert.h"
#include "formats/dequantize.h"
#include "formats/quantize.h"
#include "formats/test_fixture.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

std::vector<float> dequantize_all(const MatrixView& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.n * matrix.k));
  for (std::int64_t row = 0; row < matrix.n; ++row)
    dequantize_row(
        matrix, row,
        std::span(values).subspan(static_cast<std::size_t>(row * matrix.k), static_cast<std::size_t>(matrix.k)));
  return values;
}

/// A case of matrices.json: what another library made of some values.
struct Case {
  std::string name;
  QuantizedMatrix matrix;
  std::vector<float> values, dequantized;
};

std::vector<Case> read_cases() {
  std::vector<Case> cases;
  const Json fixture = read_fixture("formats/matrices.json");
  for (const Json& json : fixture["cases"]) {
    Case one;
    one.name = json["name"].get<std::string>();
    EXPECT_TRUE(from_json(json["spec"], one.matrix.spec));
    one.matrix.n = json["n"].get<std::int64_t>();
    one.matrix.k = json["k"].get<std::int64_t>();
    one.matrix.data = unhex<std::byte>(json["data"]);
    one.matrix.scales = unhex<std::byte>(json["scales"]);
    one.matrix.zeros = unhex<std::byte>(json["zeros"]);
    one.matrix.global_scale = json["global_scale"].get<float>();
    one.values = unhex<float>(json["values"]);
    one.dequantized = unhex<float>(json["dequantized"]);
    cases.push_back(std::move(one));
  }
  EXPECT_EQ(cases.size(), 10U);
  return cases;
}

TEST(Matrix, PartsHaveTheSizesOfMatrixBytes) {
  for (const Case& one : read_cases()) {
    const MatrixBytes bytes = matrix_bytes(one.matrix.spec, one.matrix.n, one.matrix.k);
    EXPECT_EQ(std::ssize(one.matrix.data), bytes.data) << one.name;
    EXPECT_EQ(std::ssize(one.matrix.scales), bytes.scales) << one.name;
    EXPECT_EQ(std::ssize(one.matrix.zeros), bytes.zeros) << one.name;
    EXPECT_TRUE(check_matrix(one.matrix.view())) << one.name;
  }
}

TEST(Matrix, DequantisesAsOtherLibrariesDo) {
  for (const Case& one : read_cases()) {
    const std::vector<float> got = dequantize_all(one.matrix.view());
    ASSERT_EQ(got.size(), one.dequantized.size()) << one.name;
    // They divide where we multiply by the reciprocal: the last bit of the scale may differ, twice rounded.
    const double last_bits = one.matrix.spec.format == WeightFormat::nvfp4 ? 0x1p-22 : 0.0;
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], one.dequantized[i], last_bits * std::abs(one.dequantized[i])) << one.name << " " << i;
  }
}

TEST(Matrix, QuantisesAsOtherLibrariesDo) {
  for (const Case& one : read_cases()) {
    const auto got = quantize(one.matrix.spec, one.values, one.matrix.n, one.matrix.k);
    ASSERT_TRUE(got) << one.name << ": " << got.error().what;
    EXPECT_EQ(got->data, one.matrix.data) << one.name;
    EXPECT_EQ(got->zeros, one.matrix.zeros) << one.name;
    EXPECT_NEAR(got->global_scale, one.matrix.global_scale, 0x1p-22F * one.matrix.global_scale) << one.name;
    if (one.matrix.spec.format != WeightFormat::int4) {
      EXPECT_EQ(got->scales, one.matrix.scales) << one.name;
      continue;
    }
    // (high - low) / 15 against high / 15 - low / 15.
    for (std::size_t i = 0; i < got->scales.size(); i += 4) {
      float ours = 0, theirs = 0;
      std::memcpy(&ours, got->scales.data() + i, 4);
      std::memcpy(&theirs, one.matrix.scales.data() + i, 4);
      EXPECT_NEAR(ours, theirs, 0x1p-22F * theirs) << one.name;
    }
  }
}

TEST(Matrix, ByHand) {
  // fp8_block [2,2] over 3 x 3: four scales, the last row and column in blocks of their own.
  const std::vector<std::uint8_t> codes = {0x38, 0x40, 0x44, 0xb8, 0x30, 0x7e, 0x01, 0x00, 0x80};
  const std::vector<float> scales = {1.0F, 10.0F, 100.0F, 1000.0F};
  const MatrixView fp8{WeightSpec::fp8_block(2, 2),
                       3,
                       3,
                       reinterpret_cast<const std::byte*>(codes.data()),
                       reinterpret_cast<const std::byte*>(scales.data()),
                       nullptr,
                       1.0F};
  EXPECT_EQ(dequantize_all(fp8), (std::vector<float>{1, 2, 30, -1, 0.5, 4480, 100 * 0x1p-9F, 0, -0.0F}));

  // int4, groups of 4 over 6 columns, zero points 3 and 0: nibbles 0…5, the even column low.
  const std::vector<std::uint8_t> nibbles = {0x10, 0x32, 0x54};
  const std::vector<float> group_scales = {2.0F, 0.5F};
  const std::vector<std::uint8_t> zeros = {3, 0};
  MatrixView int4{WeightSpec::int4(4, true),
                  1,
                  6,
                  reinterpret_cast<const std::byte*>(nibbles.data()),
                  reinterpret_cast<const std::byte*>(group_scales.data()),
                  reinterpret_cast<const std::byte*>(zeros.data()),
                  1.0F};
  EXPECT_EQ(dequantize_all(int4), (std::vector<float>{-6, -4, -2, 0, 2, 2.5}));
  int4.spec.zero_point = false;
  EXPECT_EQ(dequantize_all(int4), (std::vector<float>{-16, -14, -12, -10, -2, -1.5}));

  // nvfp4: group scale 0x40 (2.0) times the global scale; the second group is two columns short of nothing.
  std::vector<std::uint8_t> pairs(9, 0);
  pairs[0] = 0xf1;  // 0.5, -6
  pairs[8] = 0x27;  // 6, 1
  const std::vector<std::uint8_t> e4m3_scales = {0x40, 0x38};
  const MatrixView nvfp4{WeightSpec::nvfp4(),
                         1,
                         18,
                         reinterpret_cast<const std::byte*>(pairs.data()),
                         reinterpret_cast<const std::byte*>(e4m3_scales.data()),
                         nullptr,
                         0.25F};
  const std::vector<float> got = dequantize_all(nvfp4);
  EXPECT_EQ(got[0], 0.25F);
  EXPECT_EQ(got[1], -3.0F);
  EXPECT_EQ(got[2], 0.0F);
  EXPECT_EQ(got[16], 1.5F);
  EXPECT_EQ(got[17], 0.25F);
}

std::vector<WeightSpec> all_specs() {
  return {WeightSpec::bf16(),          WeightSpec::fp16(),        WeightSpec::fp8_tensor(), WeightSpec::fp8_channel(),
          WeightSpec::fp8_block(3, 5), WeightSpec::mxfp8(),       WeightSpec::nvfp4(),      WeightSpec::mxfp4(),
          WeightSpec::int4(6),         WeightSpec::int4(10, true)};
}

/// The rectangle of elements that share a scale with one element.
double group_amax(const WeightSpec& spec, const std::vector<float>& values, std::int64_t n, std::int64_t k,
                  std::int64_t row, std::int64_t column) {
  const bool whole = spec.format == WeightFormat::fp8_tensor;
  const std::int64_t rows = whole ? n : spec.format == WeightFormat::fp8_block ? spec.block_n : 1;
  const std::int64_t columns = spec.block_k > 0 ? spec.block_k : k;
  double amax = 0;
  for (std::int64_t r = row / rows * rows; r < std::min(n, (row / rows + 1) * rows); ++r)
    for (std::int64_t c = column / columns * columns; c < std::min(k, (column / columns + 1) * columns); ++c)
      amax = std::max(amax, std::abs(static_cast<double>(values[static_cast<std::size_t>(r * k + c)])));
  return amax;
}

/// Random values, some rows tiny, some groups zero, some values the same.
std::vector<float> random_values(std::mt19937& random, std::int64_t count) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> kind(0, 9), exponent(-20, 8);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    const int what = kind(random);
    value = what == 0 ? 0.0F : what == 1 ? std::ldexp(1.0F, exponent(random)) : normal(random);
  }
  return values;
}

TEST(Matrix, ErrorsStayWithinTheBound) {
  std::mt19937 random(3);
  std::uniform_int_distribution<std::int64_t> size(1, 70);
  for (const WeightSpec& spec : all_specs()) {
    double closest = 0;  // how near any error comes to its bound
    for (int round = 0; round < 40; ++round) {
      const std::int64_t n = size(random) % 9 + 1;
      const std::int64_t k = is_four_bit(spec.format) ? size(random) * 2 : size(random);
      const std::vector<float> values = random_values(random, n * k);
      const auto matrix = quantize(spec, values, n, k);
      ASSERT_TRUE(matrix) << describe(spec) << ": " << matrix.error().what;
      ASSERT_TRUE(check_matrix(matrix->view())) << describe(spec);
      const std::vector<float> back = dequantize_all(matrix->view());
      const double all = group_amax(WeightSpec::fp8_tensor(), values, n, k, 0, 0);
      for (std::int64_t i = 0; i < n * k; ++i) {
        const double value = static_cast<double>(values[static_cast<std::size_t>(i)]);
        const double error = std::abs(static_cast<double>(back[static_cast<std::size_t>(i)]) - value);
        const double bound = error_bound(spec, std::abs(value), group_amax(spec, values, n, k, i / k, i % k), all);
        ASSERT_LE(error, bound) << describe(spec) << " " << n << " x " << k << " at " << i << ": " << value;
        if (bound > 0) closest = std::max(closest, error / bound);
      }
    }
    // A bound that no error comes near would prove nothing.
    EXPECT_GT(closest, 0.8) << describe(spec);
  }
}

TEST(Matrix, TinyAndZeroGroups) {
  for (const WeightSpec& spec : all_specs())
    for (const float value : {0.0F, 1e-45F, -1e-40F, 1e-30F}) {
      const std::vector<float> values(60, value);
      const auto matrix = quantize(spec, values, 1, 60);
      ASSERT_TRUE(matrix) << describe(spec);
      EXPECT_TRUE(check_matrix(matrix->view())) << describe(spec) << " " << value;
      for (const float back : dequantize_all(matrix->view()))
        EXPECT_LE(std::abs(back - value), error_bound(spec, std::abs(value), std::abs(value), std::abs(value)))
            << describe(spec) << " " << value;
    }
}

TEST(Matrix, HugeValuesSaturateNowhere) {
  for (const WeightSpec& spec : all_specs()) {
    if (spec.format == WeightFormat::fp16) continue;
    std::vector<float> values(60, 1e38F);
    values[7] = -3e38F;
    const auto matrix = quantize(spec, values, 1, 60);
    ASSERT_TRUE(matrix) << describe(spec);
    const std::vector<float> back = dequantize_all(matrix->view());
    for (std::size_t i = 0; i < back.size(); ++i) EXPECT_TRUE(std::isfinite(back[i])) << describe(spec);
    EXPECT_LT(back[7], -2e38F) << describe(spec);
  }
}

TEST(Matrix, QuantizeRefusesWhatCannotBe) {
  const std::vector<float> values(6, 1.0F);
  EXPECT_THAT(quantize(WeightSpec::nvfp4(), values, 2, 3).error().what, HasSubstr("3 columns"));
  EXPECT_THAT(quantize(WeightSpec::bf16(), values, 2, 4).error().what, HasSubstr("6 values for a matrix of 2 x 4"));
  EXPECT_THAT(quantize(WeightSpec::bf16(), values, -2, -3).error().what, HasSubstr("-2 x -3"));
  EXPECT_THAT(quantize(WeightSpec::fp8_block(0, 4), values, 2, 3).error().what, HasSubstr("0 x 4"));
  std::vector<float> bad = values;
  bad[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(quantize(WeightSpec::fp8_tensor(), bad, 2, 3).error().what, HasSubstr("row 1, column 1"));
  bad[4] = 70000.0F;
  EXPECT_THAT(quantize(WeightSpec::fp16(), bad, 2, 3).error().what, HasSubstr("70000 at row 1, column 1"));
  EXPECT_TRUE(quantize(WeightSpec::bf16(), bad, 2, 3));
}

TEST(CheckShape, Refuses) {
  EXPECT_TRUE(check_shape(WeightSpec::fp8_block(), 1, 1));
  EXPECT_FALSE(check_shape(WeightSpec::bf16(), 0, 4));
  EXPECT_FALSE(check_shape(WeightSpec::bf16(), std::int64_t{1} << 62, 4));
  EXPECT_FALSE(check_shape(WeightSpec::int4(0), 4, 4));
  EXPECT_FALSE(check_shape(WeightSpec::int4(-32), 4, 4));
  EXPECT_FALSE(check_shape(WeightSpec::fp8_block(128, -1), 4, 4));
  WeightSpec odd = WeightSpec::nvfp4();
  odd.block_k = 0;
  EXPECT_THAT(check_shape(odd, 4, 4).error().what, HasSubstr("a scale per 16 columns, not 0"));
  EXPECT_EQ(matrix_bytes(odd, 4, 4).scales, 0);  // and does not divide by zero
}

/// A sound matrix of a format, whose parts a test then damages.
QuantizedMatrix sound(const WeightSpec& spec) {
  std::vector<float> values(4 * 64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3.0F;
  auto matrix = quantize(spec, values, 4, 64);
  EXPECT_TRUE(matrix);
  return *std::move(matrix);
}

void set_float(std::vector<std::byte>& bytes, std::size_t index, float value) {
  std::memcpy(bytes.data() + index * 4, &value, 4);
}

TEST(CheckScales, FindsTheFirstBadOne) {
  QuantizedMatrix block = sound(WeightSpec::fp8_block(2, 32));
  ASSERT_TRUE(check_matrix(block.view()));
  set_float(block.scales, 3, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(check_matrix(block.view()).error().what, HasSubstr("row 1, group 1 is nan"));
  set_float(block.scales, 2, -std::numeric_limits<float>::infinity());
  EXPECT_THAT(check_matrix(block.view()).error().what, HasSubstr("row 1, group 0 is -inf"));

  QuantizedMatrix mx = sound(WeightSpec::mxfp4());
  mx.scales[5] = std::byte{0xff};
  EXPECT_THAT(check_matrix(mx.view()).error().what, HasSubstr("row 2, group 1 is nan"));

  QuantizedMatrix nvfp4 = sound(WeightSpec::nvfp4());
  nvfp4.scales[4] = std::byte{0x7f};
  EXPECT_THAT(check_matrix(nvfp4.view()).error().what, HasSubstr("row 1, group 0 is nan"));
  nvfp4.scales[4] = std::byte{0xb8};
  EXPECT_THAT(check_matrix(nvfp4.view()).error().what, HasSubstr("row 1, group 0 is -1"));

  QuantizedMatrix channel = sound(WeightSpec::fp8_channel());
  set_float(channel.scales, 0, -1.0F);
  EXPECT_THAT(check_matrix(channel.view()).error().what, HasSubstr("row 0, group 0 is -1"));
}

TEST(CheckScales, GlobalScaleZeroPointsAndAbsentParts) {
  QuantizedMatrix nvfp4 = sound(WeightSpec::nvfp4());
  for (const float bad : {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    nvfp4.global_scale = bad;
    EXPECT_THAT(check_matrix(nvfp4.view()).error().what, HasSubstr("global scale")) << bad;
  }
  QuantizedMatrix int4 = sound(WeightSpec::int4(32, true));
  int4.zeros[6] = std::byte{200};
  EXPECT_THAT(check_matrix(int4.view()).error().what, HasSubstr("zero point 200 at row 3, group 0"));
  MatrixView view = int4.view();
  view.zeros = nullptr;
  EXPECT_FALSE(check_matrix(view));
  view.scales = nullptr;
  EXPECT_THAT(check_matrix(view).error().what, HasSubstr("scales are absent"));
  view = sound(WeightSpec::bf16()).view();
  view.data = nullptr;
  EXPECT_THAT(check_matrix(view).error().what, HasSubstr("weights are absent"));
}

TEST(CheckElements, FindsTheFirstBadOne) {
  QuantizedMatrix fp8 = sound(WeightSpec::fp8_tensor());
  fp8.data[64 + 5] = std::byte{0xff};
  EXPECT_THAT(check_matrix(fp8.view()).error().what, HasSubstr("row 1, column 5 is NaN"));
  for (const WeightSpec& spec : {WeightSpec::bf16(), WeightSpec::fp16()}) {
    QuantizedMatrix wide = sound(spec);
    wide.data[2 * (3 * 64 + 63) + 1] = std::byte{0x7f};
    wide.data[2 * (3 * 64 + 63)] = std::byte{0x80};
    EXPECT_THAT(check_matrix(wide.view()).error().what, HasSubstr("row 3, column 63 is not finite"));
  }
}

TEST(Spec, Describes) {
  EXPECT_EQ(describe(WeightSpec::fp8_block()), "fp8_block [128,128]");
  EXPECT_EQ(describe(WeightSpec::int4(32, true)), "int4 group 32 with zero points");
  EXPECT_EQ(describe(WeightSpec::nvfp4()), "nvfp4");
}

}  // namespace
}  // namespace moetune
