// Layers read from small checkpoints of every layout, against what other packages make of the same files
// (scripts/make_checkpoints.py), for every rank; and checkpoints that are damaged or not what config.json says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "formats/convert.h"
#include "formats/dequantize.h"
#include "model/layer.h"
#include "model/model.h"
#include "model/test_safetensors.h"

namespace moetune {
namespace {

using testing::HasSubstr;

const std::string kFolder = std::string(MOETUNE_SOURCE_DIR) + "/tests/fixtures/checkpoints/";

/// A row of cases.json.
struct Case {
  std::string folder, expected;
  std::int64_t layer = 0, experts = 0, hidden = 0, intermediate = 0, tp = 0;
  bool gated = true, bias = false;
  double tolerance = 0.0;
  WeightSpec weights;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("folder", self.folder);
    visit("expected", self.expected);
    visit("layer", self.layer);
    visit("experts", self.experts);
    visit("hidden", self.hidden);
    visit("intermediate", self.intermediate);
    visit("tp", self.tp);
    visit("gated", self.gated);
    visit("bias", self.bias);
    visit("tolerance", self.tolerance);
    visit("weights", self.weights);
  }

  [[nodiscard]] Geometry geometry() const {
    Geometry geometry;
    geometry.experts = experts;
    geometry.top_k = 1;
    geometry.hidden = geometry.expert_hidden = hidden;
    geometry.intermediate = intermediate;
    geometry.layers = layer + 1;
    geometry.moe_layers = {layer};
    geometry.gated = gated;
    geometry.expert_bias = bias;
    geometry.weights = weights;
    return geometry;
  }

  [[nodiscard]] Problem problem(const Cut& how) const {
    Problem problem;
    problem.experts_global = experts;
    problem.experts = experts / how.ep;
    problem.first_expert = how.ep_rank * problem.experts;
    problem.top_k = 1;
    problem.hidden = hidden;
    problem.intermediate = intermediate / how.tp;
    problem.tp = how.tp;
    problem.ep = how.ep;
    problem.gated = gated;
    problem.bias = bias;
    problem.weights = weights;
    return problem;
  }

  [[nodiscard]] Result<Layer> load(const Cut& how = {}) const {
    return load_layer(kFolder + folder, geometry(), problem(how), how);
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto json = read_json(kFolder + "cases.json");
  EXPECT_TRUE(json && from_json(*json, all));
  return all;
}

Case find_case(const std::string& folder) {
  for (const Case& one : cases())
    if (one.folder == folder) return one;
  ADD_FAILURE() << "no case " << folder;
  return {};
}

void PrintTo(const Case& one, std::ostream* out) { *out << one.folder; }

/// The floats of a file that holds f32 or bf16.
std::vector<float> read_floats(const std::string& path, bool bf16) {
  const auto bytes = read_file(path, 1 << 20);
  EXPECT_TRUE(bytes);
  std::vector<float> values(bytes->size() / (bf16 ? 2 : 4));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    if (bf16) {
      std::memcpy(&half, bytes->data() + 2 * i, 2);
      values[i] = bf16_to_float(half);
    } else {
      std::memcpy(&values[i], bytes->data() + 4 * i, 4);
    }
  }
  return values;
}

/// The whole model's matrix of one expert, in expected.bin.
struct Expected {
  std::vector<float> values;
  const Case* one = nullptr;

  /// projection: 0 gate, 1 up, 2 down
  [[nodiscard]] float at(std::int64_t expert, std::int64_t projection, std::int64_t row, std::int64_t column) const {
    const std::int64_t size = one->hidden * one->intermediate, count = one->gated ? 3 : 2;
    const std::int64_t columns = projection == 2 ? one->intermediate : one->hidden;
    const std::int64_t matrix = expert * count + projection - (one->gated ? 0 : 1);
    return values[static_cast<std::size_t>(matrix * size + row * columns + column)];
  }
};

void expect_stack(const ExpertStack& stack, const Expected& expected, std::int64_t projection, const Cut& how) {
  std::vector<float> row(static_cast<std::size_t>(stack.k));
  for (std::int64_t e = 0; e < stack.experts; ++e)
    for (std::int64_t n = 0; n < stack.n; ++n) {
      dequantize_row(stack.at(e), n, row);
      for (std::int64_t k = 0; k < stack.k; ++k) {
        const std::int64_t row0 = projection == 2 ? 0 : how.tp_rank * stack.n;
        const std::int64_t column0 = projection == 2 ? how.tp_rank * stack.k : 0;
        const float want = expected.at(how.ep_rank * stack.experts + e, projection, row0 + n, column0 + k);
        const float have = row[static_cast<std::size_t>(k)];
        ASSERT_LE(std::abs(static_cast<double>(have) - static_cast<double>(want)),
                  expected.one->tolerance * std::abs(static_cast<double>(want)))
            << "projection " << projection << ", local expert " << e << ", row " << n << ", column " << k << ": "
            << have << ", expected " << want;
      }
    }
}

void expect_bias(const Case& one, const Layer& layer, const Cut& how) {
  const auto all = read_floats(kFolder + one.folder + "/bias.bin", false);
  const std::int64_t stride = 2 * one.intermediate + one.hidden, local = one.intermediate / how.tp;
  for (std::int64_t e = 0; e < layer.up.experts; ++e) {
    const float* expert = all.data() + (how.ep_rank * layer.up.experts + e) * stride;
    for (std::int64_t i = 0; i < local; ++i) {
      ASSERT_EQ(layer.gate.bias_of(e)[static_cast<std::size_t>(i)], expert[how.tp_rank * local + i]);
      ASSERT_EQ(layer.up.bias_of(e)[static_cast<std::size_t>(i)], expert[one.intermediate + how.tp_rank * local + i]);
    }
    for (std::int64_t i = 0; i < one.hidden; ++i)
      ASSERT_EQ(layer.down.bias_of(e)[static_cast<std::size_t>(i)],
                how.tp_rank == 0 ? expert[2 * one.intermediate + i] : 0.0F);
  }
}

class EveryLayout : public testing::TestWithParam<Case> {};

TEST_P(EveryLayout, MatchesTheOtherPackagesOnEveryRank) {
  const Case& one = GetParam();
  const Expected expected{read_floats(kFolder + one.folder + "/expected.bin", one.expected == "bf16"), &one};
  ASSERT_EQ(static_cast<std::int64_t>(expected.values.size()),
            one.experts * (one.gated ? 3 : 2) * one.hidden * one.intermediate);
  for (const Cut& how :
       {Cut{1, 1, 0, 0}, Cut{1, 2, 0, 0}, Cut{1, 2, 0, 1}, Cut{2, 1, 0, 0}, Cut{2, 1, 1, 0}, Cut{2, 2, 1, 1}}) {
    if (how.tp > one.tp) continue;
    SCOPED_TRACE(testing::Message() << "TP rank " << how.tp_rank << " of " << how.tp << ", EP rank " << how.ep_rank
                                    << " of " << how.ep);
    const auto layer = one.load(how);
    ASSERT_TRUE(layer) << layer.error().what;
    ASSERT_EQ(layer->gate.experts, one.gated ? one.experts / how.ep : 0);
    ASSERT_EQ(layer->up.experts, one.experts / how.ep);
    if (one.gated) expect_stack(layer->gate, expected, 0, how);
    expect_stack(layer->up, expected, 1, how);
    expect_stack(layer->down, expected, 2, how);
    if (one.bias) expect_bias(one, *layer, how);
    EXPECT_EQ(layer->up.bias.empty(), !one.bias);
    EXPECT_EQ(layer->origin, kFolder + one.folder + ", layer " + std::to_string(one.layer));
  }
}

/// The way a user's folder goes: its config.json gives the sizes and the format by which its weights are read.
TEST_P(EveryLayout, ConfigAndWeightsOfTheFolderAgree) {
  const Case& one = GetParam();
  const auto model = open_model(kFolder + one.folder);
  ASSERT_TRUE(model) << model.error().what;
  EXPECT_EQ(model->geometry.weights, one.weights) << describe(model->geometry.weights);
  EXPECT_EQ(model->geometry.gated, one.gated);
  EXPECT_EQ(model->geometry.expert_bias, one.bias);
  const auto problem = cut(model->geometry, {});
  ASSERT_TRUE(problem) << problem.error().what;
  const auto layer = load_layer(kFolder + one.folder, model->geometry, *problem, {}, one.layer);
  ASSERT_TRUE(layer) << layer.error().what;
  EXPECT_EQ(layer->up.experts, one.experts);
  EXPECT_EQ(layer->up.n, one.intermediate);
  EXPECT_EQ(layer->up.k, one.hidden);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, EveryLayout, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.folder; });

TEST(LoadLayer, LayerThatIsNotThere) {
  const Case one = find_case("qwen3_moe");
  EXPECT_THAT(load_layer(kFolder + one.folder, one.geometry(), one.problem({}), {}, 0).error().what,
              HasSubstr("layer 0 of 2 is dense or not there; the first with experts is 1, the last 1"));
  Geometry every = one.geometry();
  every.moe_layers = {0, 1};
  EXPECT_THAT(load_layer(kFolder + one.folder, every, one.problem({}), {}, 0).error().what,
              HasSubstr("layer 0 has no experts; layers 1 to 1 have experts"));
}

TEST(LoadLayer, ConfigThatPromisesSomethingElse) {
  Case more = find_case("qwen3_moe");
  more.experts = 8;
  EXPECT_THAT(more.load().error().what, HasSubstr("there is no tensor model.layers.1.mlp.experts.4.gate_proj.weight"));
  Case wider = find_case("qwen3_moe");
  wider.intermediate = 16;
  EXPECT_THAT(
      wider.load().error().what,
      HasSubstr("model.layers.1.mlp.experts.0.gate_proj.weight has shape [8, 16]; config.json promises [16, 16]"));
  Case fused = find_case("llama4");
  fused.intermediate = 16;
  EXPECT_THAT(fused.load().error().what, HasSubstr("config.json promises 4 experts of 16 x 16"));
  Case fewer = find_case("llama4");
  fewer.experts = 2;
  EXPECT_THAT(fewer.load().error().what, HasSubstr("experts.gate_up_proj has shape [4, 16, 16]"));
  Case quantised = find_case("qwen3_moe");
  quantised.weights = WeightSpec::fp8_block();
  EXPECT_THAT(quantised.load().error().what, HasSubstr("gate_proj.weight is BF16; fp8_block [128,128] needs F8_E4M3"));
  Case plain = find_case("fp8_block");
  plain.weights = WeightSpec::bf16();
  EXPECT_THAT(plain.load().error().what, HasSubstr("gate_proj.weight is F8_E4M3; bf16 needs BF16 or F16 or F32"));
  Case symmetric = find_case("int4_gptq_v2_asymmetric");
  symmetric.weights.zero_point = false;
  EXPECT_THAT(symmetric.load().error().what, HasSubstr("config.json promises symmetric weights"));
  Case asymmetric = find_case("int4_compressed_tensors");
  asymmetric.weights.zero_point = true;
  EXPECT_THAT(asymmetric.load().error().what, HasSubstr("there are no zero points"));
}

TEST(LoadLayer, CutThatTheFormatCannotTake) {
  Case one = find_case("fp8_block");
  one.weights.block_n = 6;
  EXPECT_THAT(one.load({2, 1, 1, 0}).error().what,
              HasSubstr("this device's part begins at row 8, inside a block of 6 that shares a scale"));
  Problem other = one.problem({});
  other.intermediate = 8;
  EXPECT_THAT(
      load_layer(kFolder + one.folder, one.geometry(), other, {}).error().what,
      HasSubstr("2 experts from 0 on, of 8 x 16, are not rank 0 of TP 1 and rank 0 of EP 1 of 2 experts of 16 x 16"));
}

TEST(LoadLayer, FolderWithoutWeights) {
  const Case one = find_case("qwen3_moe");
  EXPECT_FALSE(has_weights(kFolder));
  EXPECT_TRUE(has_weights(kFolder + "qwen3_moe"));
  EXPECT_THAT(load_layer(kFolder, one.geometry(), one.problem({}), {}).error().what,
              HasSubstr("no safetensors files in this folder"));
  EXPECT_FALSE(has_weights("/nonexistent"));
}

/// A folder of one expert, 2 × 4, whose tensors a test can change.
class Damaged : public testing::Test {
 protected:
  Damaged()
      : folder_(testing::TempDir() + "moetune_damaged_" + std::to_string(::getpid()) + "_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    one_.experts = 1;
    one_.hidden = 4;
    one_.intermediate = 2;
    one_.weights = WeightSpec::bf16();
  }
  ~Damaged() override { std::filesystem::remove_all(folder_); }

  void put(const std::string& suffix, const std::string& dtype, const std::vector<std::int64_t>& shape,
           const std::string& bytes, bool turn_down = true) {
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
      auto turned = shape;
      if (turn_down && std::string(name) == "down_proj" && turned.size() == 2) std::swap(turned[0], turned[1]);
      file_.add(std::string("model.layers.0.mlp.experts.0.") + name + suffix, dtype, turned, bytes);
    }
  }
  [[nodiscard]] std::string error() {
    EXPECT_TRUE(write_file(folder_ + "/model.safetensors", file_.text()));
    const auto layer = load_layer(folder_, one_.geometry(), one_.problem({}), {});
    return layer ? "" : layer.error().what;
  }

  static std::string floats(std::initializer_list<float> values) {
    std::string bytes(values.size() * 4, '\0');
    std::memcpy(bytes.data(), std::data(values), bytes.size());
    return bytes;
  }

  std::string folder_;
  Case one_;
  TestSafetensors file_;
};

TEST_F(Damaged, NothingWrong) {
  put(".weight", "BF16", {2, 4}, std::string(16, '\0'));
  EXPECT_EQ(error(), "");
}

TEST_F(Damaged, WeightThatIsNotFinite) {
  std::string bytes(16, '\0');
  bytes[6] = '\x80';
  bytes[7] = '\x7f';  // infinity at column 3
  put(".weight", "BF16", {2, 4}, bytes);
  EXPECT_THAT(error(), HasSubstr("experts.0.gate_proj.weight: the weight at row 0, column 3 is not finite"));
}

TEST_F(Damaged, ScaleThatIsNotANumber) {
  one_.weights = WeightSpec::fp8_block(2, 2);
  put(".weight", "F8_E4M3", {2, 4}, std::string(8, '\x30'));
  put(".weight_scale_inv", "F32", {1, 2}, floats({1.0F, std::nanf("")}));
  EXPECT_THAT(error(), HasSubstr("experts.0.gate_proj.weight: the scale at row 0, group 1 is nan"));
}

TEST_F(Damaged, GlobalScaleOfZero) {
  one_.hidden = one_.intermediate = 16;
  one_.weights = WeightSpec::nvfp4();
  put(".weight_packed", "U8", {16, 8}, std::string(128, '\0'), false);
  put(".weight_scale", "F8_E4M3", {16, 1}, std::string(16, '\x38'), false);
  put(".weight_global_scale", "F32", {}, floats({0.0F}));
  EXPECT_THAT(error(),
              HasSubstr("experts.0.gate_proj.weight_global_scale is 0; a global scale is positive and finite"));
}

TEST_F(Damaged, MissingScale) {
  one_.weights = WeightSpec::fp8_channel();
  put(".weight", "F8_E4M3", {2, 4}, std::string(8, '\x30'));
  EXPECT_THAT(error(), HasSubstr("there is no tensor model.layers.0.mlp.experts.0.gate_proj.weight_scale_inv"));
}

TEST_F(Damaged, FloatsThatSurviveConversion) {
  put(".weight", "F32", {2, 4}, floats({1.0F, -2.5F, 0.0F, 3.0F, 0.125F, -0.0F, 0.5F, 256.0F}));
  EXPECT_EQ(error(), "");
}

TEST_F(Damaged, FloatsThatDoNot) {
  put(".weight", "F32", {2, 4}, floats({1.0F, -2.5F, 0.0F, 3.0F, 0.125F, 0.1F, 0.0F, 256.0F}));
  EXPECT_THAT(error(), HasSubstr("gate_proj.weight is F32, and its value 0.1 at row 1, column 1 has no equal in bf16"));
}

TEST_F(Damaged, GroupsOfScatteredColumns) {
  one_.hidden = one_.intermediate = 32;
  one_.weights = WeightSpec::int4(16);
  std::string order(32 * 4, '\0');
  order[4] = 1;
  put(".weight_packed", "I32", {32, 4}, std::string(512, '\0'), false);
  put(".weight_scale", "F32", {32, 2}, std::string(256, '\0'), false);
  put(".weight_g_idx", "I32", {32}, order);
  EXPECT_THAT(error(), HasSubstr("weight_g_idx: column 1 is of group 1, not 0"));
}

TEST_F(Damaged, UnknownElementType) {
  put(".weight", "F6_E2M3", {2, 4}, std::string(6, '\0'));
  EXPECT_THAT(error(), HasSubstr("gate_proj.weight is F6_E2M3, which no expert weights are known to be"));
}

}  // namespace
}  // namespace moetune
