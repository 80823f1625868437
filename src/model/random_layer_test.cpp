// Random weights: the bytes by a second, slow formula; the spread by what the weights do to a vector.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/convert.h"
#include "formats/dequantize.h"
#include "model/layer.h"

namespace moetune {
namespace {

Problem small_problem(const WeightSpec& weights) {
  Problem problem;
  problem.experts = problem.experts_global = 5;
  problem.top_k = 2;
  problem.hidden = 416;
  problem.intermediate = 352;
  problem.weights = weights;
  return problem;
}

const std::vector<WeightSpec>& every_spec() {
  static const std::vector<WeightSpec> specs = {
      WeightSpec::bf16(),          WeightSpec::fp16(),        WeightSpec::fp8_tensor(), WeightSpec::fp8_channel(),
      WeightSpec::fp8_block(),     WeightSpec::mxfp8(),       WeightSpec::nvfp4(),      WeightSpec::mxfp4(),
      WeightSpec::int4(32, false), WeightSpec::int4(32, true)};
  return specs;
}

Layer make(const Problem& problem, std::uint64_t seed, unsigned threads = 0) {
  auto layer = random_layer(problem, seed, threads);
  EXPECT_TRUE(layer) << (layer ? "" : layer.error().what);
  return layer ? *std::move(layer) : Layer{};
}

std::string text(const void* data, std::size_t bytes) { return {static_cast<const char*>(data), bytes}; }
std::string text(const Buffer& buffer) { return text(buffer.data(), static_cast<std::size_t>(buffer.size())); }
std::string text(const std::vector<float>& values) { return text(values.data(), values.size() * 4); }

/// Everything in a layer, by one hash.
std::string hash(const Layer& layer) {
  std::string all;
  for (const ExpertStack* stack : {&layer.gate, &layer.up, &layer.down})
    for (const std::string& part :
         {text(stack->data), text(stack->scales), text(stack->zeros), text(stack->global_scale), text(stack->bias)})
      all += content_hash(part);
  return content_hash(all);
}

/// SplitMix64 as its authors wrote it: one number after another.
class Sequence {
 public:
  explicit Sequence(std::uint64_t state) : state_(state) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  std::uint64_t nth(std::uint64_t index) {
    for (std::uint64_t i = 0; i < index; ++i) next();
    return next();
  }

 private:
  std::uint64_t state_;
};

/// The random bytes behind part `part` of stack `stack`, before they are mapped to an element format.
std::vector<std::uint8_t> raw_bytes(std::uint64_t seed, std::uint64_t stack, std::uint64_t part, std::size_t count) {
  Sequence words(Sequence(seed).nth(8 * stack + part));
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < count) {
    const std::uint64_t word = words.next();
    for (unsigned byte = 0; byte < 8 && bytes.size() < count; ++byte)
      bytes.push_back(static_cast<std::uint8_t>((word >> (8 * byte)) & 0xffU));
  }
  return bytes;
}

std::vector<double> normal_values() {
  std::vector<double> sums;
  Sequence words(0);
  double square = 0.0;
  for (int i = 0; i < 2048; ++i) {
    const std::uint64_t word = words.next();
    double sum = -131070.0;
    for (unsigned field = 0; field < 4; ++field) sum += static_cast<double>(word >> (16 * field) & 0xffffU);
    sums.push_back(sum);
    square += sum * sum;
  }
  for (double& sum : sums) sum /= std::sqrt(square / 2048.0);
  for (std::size_t i = 0; i < 2048; ++i) sums.push_back(-sums[i]);
  return sums;
}

TEST(RandomLayer, Bf16BytesFollowTheFormula) {
  const Problem problem = small_problem(WeightSpec::bf16());
  const Layer layer = make(problem, 7);
  const std::vector<double> normal = normal_values();
  const std::size_t count = 5 * 352 * 416;
  const auto raw = raw_bytes(7, 1, 0, 2 * count);
  std::string expected;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t index = (raw[2 * i] + 256U * raw[2 * i + 1]) / 16;
    const auto value = static_cast<float>(static_cast<double>(static_cast<float>(normal[index])) / std::sqrt(416.0));
    const std::uint16_t code = float_to_bf16(value);
    expected += text(&code, 2);
  }
  EXPECT_EQ(content_hash(text(layer.up.data)), content_hash(expected));
}

TEST(RandomLayer, Nvfp4BytesFollowTheFormula) {
  const Problem problem = small_problem(WeightSpec::nvfp4());
  const Layer layer = make(problem, 3);
  const auto data = raw_bytes(3, 2, 0, 5 * 416 * 352 / 2);
  EXPECT_EQ(content_hash(text(layer.down.data)), content_hash(text(data.data(), data.size())));
  const std::vector<std::uint8_t> rare = {0, 1, 4, 7};
  auto scales = raw_bytes(3, 2, 1, 5 * 416 * 352 / 16);
  for (std::uint8_t& byte : scales) byte = byte < 4 ? rare[byte] : static_cast<std::uint8_t>(0x68 + byte % 16);
  EXPECT_EQ(content_hash(text(layer.down.scales)), content_hash(text(scales.data(), scales.size())));
}

TEST(RandomLayer, Fp8BytesFollowTheFormula) {
  const Layer layer = make(small_problem(WeightSpec::fp8_block()), 11);
  auto data = raw_bytes(11, 0, 0, 5 * 352 * 416);
  for (std::uint8_t& byte : data)
    if (byte == 0x7f || byte == 0xff) byte = static_cast<std::uint8_t>(byte - 0x40);
  EXPECT_EQ(content_hash(text(layer.gate.data)), content_hash(text(data.data(), data.size())));
}

TEST(RandomLayer, DoesNotDependOnThreads) {
  Problem problem = small_problem(WeightSpec::bf16());
  problem.intermediate = 2048;  // 8.5 MB a stack: several pieces, the last one not full
  problem.bias = true;
  const std::string one = hash(make(problem, 42, 1));
  for (const unsigned threads : {2U, 3U, 16U, 0U}) EXPECT_EQ(hash(make(problem, 42, threads)), one);
  EXPECT_NE(hash(make(problem, 43)), one);
}

TEST(RandomLayer, EveryFormatPassesTheChecksAndKeepsTheSpread) {
  for (const WeightSpec& spec : every_spec()) {
    SCOPED_TRACE(describe(spec));
    const Layer layer = make(small_problem(spec), 1);
    for (const ExpertStack* stack : {&layer.gate, &layer.up, &layer.down}) {
      double square = 0.0;
      std::vector<float> row(static_cast<std::size_t>(stack->k));
      for (std::int64_t expert = 0; expert < stack->experts; ++expert) {
        const MatrixView matrix = stack->at(expert);
        ASSERT_TRUE(check_matrix(matrix));
        for (std::int64_t n = 0; n < stack->n; ++n) {
          dequantize_row(matrix, n, row);
          for (const float value : row) square += static_cast<double>(value) * static_cast<double>(value);
        }
      }
      // Variance times K: what a projection does to the mean square of its input. A format with one scale a matrix has
      // five of them here, between half and twice the target; e8m0 scales hit it within a factor of two.
      const double gain = square / static_cast<double>(stack->experts * stack->n);
      EXPECT_GT(gain, 0.35);
      EXPECT_LT(gain, 2.6);
      if (spec.format == WeightFormat::bf16 || spec.format == WeightFormat::int4) {
        EXPECT_NEAR(gain, 1.0, 0.03);
      }
    }
  }
}

TEST(RandomLayer, ScalesDiffer) {
  const Layer layer = make(small_problem(WeightSpec::fp8_block()), 1);
  std::vector<float> scales(static_cast<std::size_t>(layer.up.scales.size()) / 4);
  std::memcpy(scales.data(), layer.up.scales.data(), scales.size() * 4);
  EXPECT_EQ(std::set<float>(scales.begin(), scales.end()).size(), scales.size());
  const auto [least, greatest] = std::minmax_element(scales.begin(), scales.end());
  EXPECT_GT(*greatest / *least, 2.0F);
  EXPECT_LT(*greatest / *least, 4.0F);
  const Layer fp4 = make(small_problem(WeightSpec::nvfp4()), 1);
  EXPECT_EQ(std::set<float>(fp4.up.global_scale.begin(), fp4.up.global_scale.end()).size(), 5U);
}

TEST(RandomLayer, BiasesOnlyWhereTheModelHasThem) {
  Problem problem = small_problem(WeightSpec::mxfp4());
  EXPECT_TRUE(make(problem, 1).down.bias.empty());
  problem.bias = true;
  const Layer layer = make(problem, 1);
  ASSERT_EQ(layer.gate.bias.size(), 5U * 352);
  ASSERT_EQ(layer.down.bias.size(), 5U * 416);
  double square = 0.0;
  for (const float value : layer.down.bias) square += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(std::sqrt(square / (5.0 * 416.0)), 0.25, 0.02);
}

TEST(RandomLayer, WithoutGate) {
  Problem problem = small_problem(WeightSpec::bf16());
  problem.gated = false;
  const Layer layer = make(problem, 1);
  EXPECT_EQ(layer.gate.experts, 0);
  EXPECT_EQ(layer.gate.data.size(), 0);
  EXPECT_EQ(layer.up.experts, 5);
  EXPECT_EQ(layer.origin, "random weights, seed 1");
}

TEST(RandomLayer, RefusesWhatNoLayerCanBe) {
  Problem none = small_problem(WeightSpec::bf16());
  none.experts = 0;
  EXPECT_EQ(random_layer(none, 1).error().what, "0 experts: a layer has 1 to 65536");
  Problem odd = small_problem(WeightSpec::nvfp4());
  odd.hidden = 401;
  EXPECT_FALSE(random_layer(odd, 1));
  Problem huge = small_problem(WeightSpec::bf16());
  huge.experts = 256;
  huge.hidden = huge.intermediate = 1 << 17;
  EXPECT_THAT(random_layer(huge, 1).error().what,
              testing::AllOf(testing::HasSubstr("the layer takes 26388.28 GB"), testing::HasSubstr("available")));
  huge.experts = 65536;
  huge.hidden = huge.intermediate = 1 << 24;
  EXPECT_FALSE(random_layer(huge, 1));
}

}  // namespace
}  // namespace moetune
