#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "base/file.h"
#include "model/catalog.h"
#include "model/embedded_data.h"
#include "model/family.h"
#include "model/model.h"
#include "model/problem.h"
#include "model/quant_reader.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

std::string fixture(const std::string& name) {
  return std::string(MOETUNE_SOURCE_DIR) + "/tests/fixtures/models/" + name;
}

std::vector<std::vector<std::string>> table() {
  std::ifstream file(fixture("geometry.csv"));
  std::vector<std::vector<std::string>> rows;
  std::string line, cell;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    rows.emplace_back();
    while (std::getline(cells, cell, ',')) rows.back().push_back(cell);
  }
  return rows;
}

/// Cells left empty in the table were not established there.
void expect_cell(const std::string& cell, double value, const char* what) {
  if (cell.empty()) return;
  EXPECT_DOUBLE_EQ(std::stod(cell), value) << what;
}

TEST(KnownModels, ParseToTheTablesNumbers) {
  const auto rows = table();
  ASSERT_GE(rows.size(), 60U);
  EXPECT_EQ(known_models().size(), rows.size());
  for (const auto& row : rows) {
    SCOPED_TRACE(row[0]);
    const auto model = open_model(row[0]);
    ASSERT_TRUE(model) << model.error().what;
    const Geometry& g = model->geometry;
    expect_cell(row[1], static_cast<double>(g.experts), "experts");
    expect_cell(row[2], static_cast<double>(g.top_k), "top_k");
    expect_cell(row[3], static_cast<double>(g.hidden), "hidden");
    expect_cell(row[4], static_cast<double>(g.intermediate), "intermediate");
    expect_cell(row[5], static_cast<double>(g.shared_intermediate), "shared_intermediate");
    expect_cell(row[6], static_cast<double>(g.moe_layers.size()), "moe_layers");
    expect_cell(row[7], static_cast<double>(g.layers), "layers");
    if (!row[8].empty()) {
      EXPECT_EQ(to_string(g.router.score), row[8]);
    }
    expect_cell(row[9], g.router.correction_bias ? 1 : 0, "correction_bias");
    expect_cell(row[10], static_cast<double>(g.router.groups), "groups");
    expect_cell(row[11], static_cast<double>(g.router.top_groups), "top_groups");
    expect_cell(row[12], g.router.renormalize ? 1 : 0, "renormalize");
    expect_cell(row[13], g.router.scaling, "scaling");
    EXPECT_EQ(to_string(g.activation.kind), row[14]);
    expect_cell(row[15], g.gated ? 1 : 0, "gated");
    EXPECT_EQ(to_string(g.weights.format), row[16]);
  }
}

TEST(KnownModels, VariantsAreWhatTheirNamesSay) {
  const auto format_of = [](const char* name) { return open_model(name).value().geometry.weights; };
  EXPECT_EQ(format_of("Qwen3-30B-A3B-NVFP4"), WeightSpec::nvfp4());
  EXPECT_EQ(format_of("qwen3-30b-a3b-fp8"), WeightSpec::fp8_block(128, 128));
  EXPECT_EQ(format_of("Qwen3-30B-A3B-GPTQ-Int4"), WeightSpec::int4(128));
  EXPECT_EQ(format_of("RedHatAI/Qwen3-30B-A3B-NVFP4"), WeightSpec::nvfp4());
  EXPECT_EQ(format_of("GLM-5-NVFP4"), WeightSpec::nvfp4());
  EXPECT_EQ(format_of("GLM-5"), WeightSpec::bf16());
  EXPECT_EQ(format_of("GLM-5-FP8"), WeightSpec::fp8_block(128, 128));
  EXPECT_EQ(format_of("DeepSeek-V3-NVFP4"), WeightSpec::nvfp4());
  EXPECT_EQ(format_of("DeepSeek-V4-Flash"), WeightSpec::mxfp4());
  EXPECT_EQ(format_of("DeepSeek-V4-Flash-NVFP4"), WeightSpec::nvfp4());
  EXPECT_EQ(format_of("MiniMax-M3-MXFP8"), WeightSpec::mxfp8());
  EXPECT_EQ(open_model("Qwen3.6-35B-A3B-NVFP4").value().geometry.activations, ActivationFormat::bf16);  // W4A16
  EXPECT_EQ(open_model("GLM-5-NVFP4").value().geometry.activations, ActivationFormat::nvfp4);
  for (const auto& known : known_models())
    for (const auto& variant : known.variants) EXPECT_TRUE(open_model(variant)) << variant;
}

TEST(KnownModels, UnknownNameListsTheNearest) {
  const auto model = open_model("GLM-5-NVPF4");
  ASSERT_FALSE(model);
  ASSERT_FALSE(model.error().hints.empty());
  EXPECT_THAT(model.error().hints.front(), HasSubstr("nearest known names: GLM-5-NVFP4"));
  EXPECT_FALSE(open_model(""));
  EXPECT_FALSE(open_model(std::string(100'000, 'x')));
  EXPECT_FALSE(open_model("\xff\xfe"));
}

TEST(DataFiles, AreWellFormedAndFaultsAreNamed) {
  for (const auto& file : model_data()) EXPECT_TRUE(parse_catalog_model(file.text, file.name)) << file.name;
  EXPECT_TRUE(parse_families(family_data().front().text, "families.toml"));
  EXPECT_THAT(parse_catalog_model(R"({"id": 1})", "x.json").error().what, HasSubstr("x.json: id: expected a string"));
  EXPECT_THAT(parse_catalog_model(R"({"idd": "a"})", "x.json").error().what, HasSubstr("unknown field idd"));
  EXPECT_THAT(parse_families("[[family]]\ntypes = [\"a\"]\nscore = \"x\"", "f").error().what,
              HasSubstr("score 'x' is not known"));
  EXPECT_THAT(parse_families("[[family]]\ntypes = [\"a\"]\nbogus = 1", "f").error().what,
              HasSubstr("bogus is not a known field"));
  EXPECT_THAT(parse_families("[[family]]\ntypes = [\"a\"]\ngated = 1", "f").error().what,
              HasSubstr("gated has the wrong type"));
  EXPECT_THAT(parse_families("[[family]", "f").error().what, HasSubstr("line 1"));
}

// ------------------------------------------------------------------------------------------------------------------
// layers

Json small() {
  return Json::parse(R"({"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "hidden_size": 64,
                         "moe_intermediate_size": 32, "num_hidden_layers": 6, "norm_topk_prob": true})");
}

std::vector<std::int64_t> layers_with(const char* key, const char* value) {
  Json config = small();
  config[key] = Json::parse(value);
  return read_geometry(config).value().moe_layers;
}

using Layers = std::vector<std::int64_t>;

TEST(Layers, EveryRule) {
  EXPECT_EQ(layers_with("mlp_only_layers", "[0, 3]"), (Layers{1, 2, 4, 5}));
  EXPECT_EQ(layers_with("decoder_sparse_step", "2"), (Layers{1, 3, 5}));
  EXPECT_EQ(layers_with("first_k_dense_replace", "4"), (Layers{4, 5}));
  EXPECT_EQ(layers_with("moe_layer_freq", "2"), (Layers{0, 2, 4}));
  EXPECT_EQ(layers_with("moe_layer_freq", "[0, 1, 0, 1, 1, 0]"), (Layers{1, 3, 4}));
  EXPECT_EQ(layers_with("interleave_moe_layer_step", "2"), (Layers{1, 3, 5}));
  EXPECT_EQ(layers_with("moe_layers", "[5, 2]"), (Layers{2, 5}));
  EXPECT_EQ(layers_with("moe_layers_enum", "\"1,2,5\""), (Layers{1, 2, 5}));
  EXPECT_EQ(layers_with("expert_layer_period", "3"), (Layers{0, 3}));
  EXPECT_EQ(layers_with("hybrid_override_pattern", "\"ME*EME\""), (Layers{1, 3, 5}));
  EXPECT_EQ(layers_with("layers_block_type", R"(["mamba", "moe", "attention", "moe", "mamba", "moe"])"),
            (Layers{1, 3, 5}));
  EXPECT_EQ(layers_with("mlp_layer_types", R"(["dense", "sparse", "sparse", "sparse", "sparse", "sparse"])"),
            (Layers{1, 2, 3, 4, 5}));
  EXPECT_EQ(layers_with("moe_layer_start_index", "4"), (Layers{4, 5}));
}

TEST(Router, GroupsAndCorrectionBias) {
  Json config = small();
  config["model_type"] = "deepseek_v3";
  config["n_group"] = 4;
  config["topk_group"] = 2;
  config["routed_scaling_factor"] = 2.5;
  const Router r = read_geometry(config).value().router;
  EXPECT_EQ(r.score, RouterScore::sigmoid);
  EXPECT_TRUE(r.correction_bias);
  EXPECT_EQ(r.groups, 4);
  EXPECT_EQ(r.top_groups, 2);
  EXPECT_EQ(r.group_score, GroupScore::top2_sum);
  EXPECT_DOUBLE_EQ(r.scaling, 2.5);
}

TEST(UnknownFamily, IsReadByItsKeysAndSaysSo) {
  Json config = small();
  config["model_type"] = "brand_new";
  const Geometry g = read_geometry(config).value();
  EXPECT_EQ(g.experts, 8);
  EXPECT_THAT(g.assumed, ::testing::Contains(HasSubstr("model_type 'brand_new' is not one of the known families")));
  EXPECT_TRUE(read_geometry(small()).value().assumed.empty());
}

TEST(LatentMoe, ExpertsSeeTheLatentWidth) {
  const Geometry g = open_model("NVIDIA-Nemotron-3-Super-120B-A12B").value().geometry;
  EXPECT_EQ(g.hidden, 4096);
  EXPECT_EQ(g.expert_hidden, 1024);
  EXPECT_FALSE(g.gated);
  EXPECT_EQ(cut(g, {}).value().hidden, 1024);
}

// -------------------------------------------------------------------------------------------------------------
// quantisation

Geometry with_quantization(const char* description) {
  Json config = small();
  config["quantization_config"] = Json::parse(description);
  auto geometry = read_geometry(config);
  return geometry ? *geometry : Geometry{};
}

TEST(Quantization, Schemes) {
  EXPECT_EQ(with_quantization(R"({"quant_method": "fp8", "weight_block_size": [64, 32]})").weights,
            WeightSpec::fp8_block(64, 32));
  EXPECT_EQ(with_quantization(R"({"quant_method": "fp8"})").weights, WeightSpec::fp8_tensor());
  EXPECT_EQ(with_quantization(R"({"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"})").weights,
            WeightSpec::fp8_channel());
  EXPECT_EQ(with_quantization(R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": true})").weights,
            WeightSpec::int4(64, true));
  EXPECT_EQ(with_quantization(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true})").weights,
            WeightSpec::int4(128));
  EXPECT_EQ(with_quantization(
                R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {"targets":
            ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": true}}}})")
                .weights,
            WeightSpec::int4(32));
  EXPECT_EQ(
      with_quantization(
          R"({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": {"targets":
            ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}}}})")
          .weights,
      WeightSpec::fp8_block(128, 128));
}

TEST(Quantization, GroupsByTargetAndExcludedExperts) {
  // The attention's group comes first; the experts' pattern decides.
  EXPECT_EQ(with_quantization(R"({"quant_method": "compressed-tensors", "config_groups": {
              "a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
              "b": {"targets": ["re:.*experts.*"], "format": "nvfp4-pack-quantized",
                    "weights": {"num_bits": 4, "type": "float", "group_size": 16}}}})")
                .weights,
            WeightSpec::nvfp4());
  EXPECT_EQ(with_quantization(R"({"quant_method": "fp8", "modules_to_not_convert": ["mlp.experts"]})").weights,
            WeightSpec::bf16());
  EXPECT_EQ(with_quantization(R"({"quant_method": "fp8", "ignore": ["model.layers.*.mlp.experts*"]})").weights,
            WeightSpec::bf16());
  EXPECT_EQ(with_quantization(
                R"({"quant_method": "fp8", "ignore": ["lm_head", "re:.*self_attn.*", "model.layers.1.mlp.gate"]})")
                .weights,
            WeightSpec::fp8_tensor());
  const Geometry partly = with_quantization(R"({"quant_method": "fp8", "ignore": ["model.layers.2.mlp.experts"]})");
  EXPECT_EQ(partly.weights, WeightSpec::fp8_tensor());
  EXPECT_THAT(partly.assumed, ::testing::ElementsAre(HasSubstr("1 of 6 MoE layers are excluded")));
}

TEST(Quantization, ModeloptsOwnFileAndMixedPrecision) {
  const Json file =
      Json::parse(R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16,
                                    "exclude_modules": ["lm_head"]}})");
  EXPECT_EQ(read_geometry(small(), file).value().weights, WeightSpec::nvfp4());
  const Json mixed = Json::parse(R"({"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {
      "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}, "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "W4A16_NVFP4"}}}})");
  const Geometry g = read_geometry(small(), mixed).value();
  EXPECT_EQ(g.weights, WeightSpec::nvfp4());
  EXPECT_EQ(g.activations, ActivationFormat::bf16);
}

TEST(Quantization, WhatIsNotSupportedIsNamed) {
  for (const char* description : {R"({"quant_method": "bitsandbytes"})", R"({"quant_method": "gptq", "bits": 3})",
                                  R"({})", R"({"quant_method": "modelopt", "quant_algo": "INT8"})",
                                  R"({"quant_method": "fp8", "weight_block_size": [0, 1]})",
                                  R"({"quant_method": "fp8", "weight_block_size": "big"})", R"({"quant_method": 7})"}) {
    Json config = small();
    config["quantization_config"] = Json::parse(description);
    EXPECT_FALSE(read_geometry(config)) << description;
  }
}

// --------------------------------------------------------------------------------------------------------------
// hostile input

TEST(Hostile, EachGivesOneClearLine) {
  const std::pair<const char*, const char*> cases[] = {{"num_experts", "0"},
                                                       {"num_experts", "-1"},
                                                       {"num_experts", "1e400"},
                                                       {"num_experts", "\"8\""},
                                                       {"num_experts", "8.5"},
                                                       {"num_experts", "99999999999"},
                                                       {"num_experts_per_tok", "9"},
                                                       {"num_experts_per_tok", "0"},
                                                       {"hidden_size", "-64"},
                                                       {"hidden_size", "1048577"},
                                                       {"hidden_size", "[]"},
                                                       {"hidden_size", "{}"},
                                                       {"num_hidden_layers", "1e9"},
                                                       {"moe_layer_freq", "[1, 2]"},
                                                       {"mlp_only_layers", "[-1]"},
                                                       {"mlp_only_layers", "[0,1,2,3,4,5]"},
                                                       {"n_group", "3"},
                                                       {"n_group", "0"},
                                                       {"topk_group", "2"},
                                                       {"routed_scaling_factor", "\"x\""},
                                                       {"routed_scaling_factor", "-1"},
                                                       {"norm_topk_prob", "\"yes\""},
                                                       {"scoring_func", "\"tanh\""},
                                                       {"hidden_act", "\"mish\""},
                                                       {"hidden_act", "3"},
                                                       {"hybrid_override_pattern", "\"EE\""},
                                                       {"moe_layers_enum", "\"1,x\""},
                                                       {"layers_block_type", "[1]"},
                                                       {"quantization_config", "[]"},
                                                       {"moe_layers", "[99]"}};
  for (const auto& [key, value] : cases) {
    SCOPED_TRACE(fmt::format("{} = {}", key, value));
    const auto parsed = parse_json(fmt::format("{{\"{}\": {}}}", key, value));
    if (!parsed) continue;  // 1e400 is no number to the parser either
    Json config = small();
    config[key] = (*parsed)[key];
    const auto geometry = read_geometry(config);
    ASSERT_FALSE(geometry);
    EXPECT_EQ(geometry.error().what.find('\n'), std::string::npos);
    EXPECT_LT(geometry.error().what.size(), 400U);
  }
  EXPECT_THAT(read_geometry(Json::object()).error().what, HasSubstr("not a Mixture-of-Experts model"));
  EXPECT_FALSE(read_geometry(Json::array()));
}

/// Whatever happens to a valid config, the answer is an error or a geometry within bounds.
TEST(Hostile, MutatedConfigsNeverGetOutOfBounds) {
  std::mt19937_64 random(7);
  const char* values[] = {
      "null", "0",   "-1",   "1",    "3",   "1e308", "9223372036854775807", "18446744073709551615", "\"x\"", "[]",
      "{}",   "[1]", "[[]]", "true", "0.5", "[0,1]", "\"sigmoid\"",         "\"noaux_tc\"",         "2",     "64"};
  int accepted = 0;
  for (const auto& file : model_data()) {
    const auto model = parse_catalog_model(file.text, file.name);
    ASSERT_TRUE(model);
    for (int round = 0; round < 40; ++round) {
      Json config = model->config;
      Json* part = &config;
      if (config.contains("text_config") && random() % 2 == 0) part = &config["text_config"];
      std::vector<std::string> keys;
      for (const auto& [key, value] : part->items()) keys.push_back(key);
      for (int change = 0; change < 2; ++change) {
        const auto& key = keys[random() % keys.size()];
        if (random() % 4 == 0)
          part->erase(key);
        else
          (*part)[key] = Json::parse(values[random() % std::size(values)]);
      }
      const auto g = read_geometry(config);
      if (!g) continue;
      ++accepted;
      EXPECT_TRUE(g->experts >= 1 && g->experts <= 65536 && g->top_k >= 1 && g->top_k <= g->experts &&
                  g->intermediate >= 1 && g->hidden <= (1 << 20) && !g->moe_layers.empty());
      for (const auto ep : {1, 2, 3}) {
        const auto p = cut(*g, {1, ep, 0, 0});
        EXPECT_TRUE(!p || expert_bytes(*p) > 0);
      }
    }
  }
  EXPECT_GT(accepted, 100);
}

// ---------------------------------------------------------------------------------------------------------------------
// cut

TEST(Cut, SharesAreExact) {
  const Geometry g = open_model("GLM-5-NVFP4").value().geometry;
  const Problem p = cut(g, {8, 4, 3, 2}).value();
  EXPECT_EQ(p.intermediate, 256);
  EXPECT_EQ(p.experts, 64);
  EXPECT_EQ(p.experts_global, 256);
  EXPECT_EQ(p.first_expert, 128);
  EXPECT_EQ(p.hidden, 6144);
  // Three projections of 256 · 6144 elements, half a byte each and one scale byte for 16.
  EXPECT_EQ(expert_bytes(p), 3 * (256 * 6144 / 2 + 256 * 6144 / 16));
  EXPECT_DOUBLE_EQ(layer_flops(p, 2), 2.0 * 3 * 256 * 6144 * 2);
  EXPECT_EQ(layer_bytes(p, 5, 2), 2 * expert_bytes(p) + 5 * 6144 * 4);
}

TEST(Cut, WhatDoesNotDivideSaysWhatWould) {
  const Geometry qwen = open_model("Qwen3-30B-A3B").value().geometry;
  const auto thirds = cut(qwen, {5, 1, 0, 0});
  ASSERT_FALSE(thirds);
  EXPECT_EQ(thirds.error().what, "intermediate 768 / TP 5 = 153.6, not a whole number");
  EXPECT_THAT(thirds.error().hints, ::testing::ElementsAre("nearest --tp that divides: 4 and 6"));
  // 768 / 4 = 192 is no multiple of the scale's 128 rows.
  const auto blocks = cut(open_model("Qwen3-30B-A3B-FP8").value().geometry, {4, 1, 0, 0});
  ASSERT_FALSE(blocks);
  EXPECT_EQ(blocks.error().what,
            "intermediate 768 / TP 4 = 192, which must be a multiple of 128 for fp8_block [128,128] weights");
  EXPECT_THAT(blocks.error().hints, ::testing::ElementsAre("nearest --tp that divides: 3 and 6"));
  EXPECT_THAT(cut(qwen, {1, 3, 0, 0}).error().hints, ::testing::ElementsAre("nearest --ep that divides: 2 and 4"));
  for (const Cut& bad : {Cut{0, 1, 0, 0}, Cut{-1, 1, 0, 0}, Cut{1, 1 << 20, 0, 0}, Cut{2, 1, 2, 0}, Cut{1, 2, 0, -1}})
    EXPECT_FALSE(cut(qwen, bad));
}

}  // namespace
}  // namespace moetune
