#include "model/quant_reader.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <re2/re2.h>

#include <algorithm>

#include "model/config_view.h"

namespace moetune {
namespace {

constexpr std::size_t kMaxPatterns = 100'000;
constexpr std::size_t kMaxPatternBytes = 1000;

/// What a description says of the experts.
struct Scheme {
  WeightSpec weights;
  ActivationFormat activations = ActivationFormat::bf16;
};

tl::unexpected<Error> unsupported(std::string_view scheme) {
  return fail(fmt::format("quantisation '{}' is not supported", std::string(scheme.substr(0, 80))),
              {"supported: bf16, fp16, fp8 (tensor, channel, block), mxfp8, nvfp4, mxfp4, int4 (compressed-tensors, "
               "awq, gptq)"});
}

std::string text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

const Json* object_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_object() ? &*found : nullptr;
}

Result<std::int64_t> size_of(const Json& json, const char* key, std::int64_t otherwise) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return otherwise;
  std::int64_t value = 0;
  if (!from_json(*found, value) || value < 1 || value > (1 << 20))
    return bad_value(key, *found, "is an integer from 1 to 1048576");
  return value;
}

Result<std::vector<std::string>> patterns_of(const Json& json) {
  std::vector<std::string> patterns;
  for (const char* key : {"ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"}) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) continue;
    if (!found->is_array() || found->size() > kMaxPatterns)
      return bad_value(key, *found, fmt::format("is a list of at most {} names", kMaxPatterns));
    for (const auto& item : *found) {
      if (!item.is_string() || item.get_ref<const std::string&>().size() > kMaxPatternBytes)
        return bad_value(key, item, fmt::format("is a name of at most {} bytes", kMaxPatternBytes));
      patterns.push_back(item.get<std::string>());
    }
  }
  return patterns;
}

bool matches(const std::string& pattern, std::string_view module) {
  if (pattern.starts_with("re:")) {
    RE2::Options quiet;
    quiet.set_log_errors(false);
    const RE2 expression(pattern.substr(3), quiet);
    return expression.ok() && RE2::FullMatch(re2::StringPiece(module.data(), module.size()), expression);
  }
  if (pattern.find('*') != std::string::npos) {
    // A pattern for a module means what is inside it too.
    for (std::size_t end = module.size(); end != std::string_view::npos && end > 0; end = module.rfind('.', end - 1))
      if (::fnmatch(pattern.c_str(), std::string(module.substr(0, end)).c_str(), 0) == 0) return true;
    return false;
  }
  return !pattern.empty() &&
         (module == pattern || module.starts_with(pattern + ".") ||
          module.find("." + pattern + ".") != std::string_view::npos || module.ends_with("." + pattern));
}

/// Names under which families store an expert of that layer.
std::vector<std::string> expert_names(std::int64_t layer) {
  std::vector<std::string> names;
  for (const char* prefix :
       {"model.layers", "model.language_model.layers", "language_model.model.layers", "backbone.layers"})
    for (const char* part :
         {"mlp.experts", "block_sparse_moe.experts", "mixer.experts", "ffn.experts", "feed_forward.experts"}) {
      names.push_back(fmt::format("{}.{}.{}", prefix, layer, part));
      names.push_back(fmt::format("{}.{}.{}.0.gate_proj", prefix, layer, part));
      names.push_back(fmt::format("{}.{}.{}.0.up_proj", prefix, layer, part));
    }
  return names;
}

bool any_of_names(const std::vector<std::string>& patterns, std::int64_t layer) {
  const auto names = expert_names(layer);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return is_excluded(patterns, name); });
}

// ------------------------------------------------------------------------------------------------------------------
// schemes

/// modelopt's algorithm names.
Result<Scheme> modelopt_scheme(const std::string& algorithm, const Json& description) {
  MOETUNE_TRY(const std::int64_t group, size_of(description, "group_size", 16));
  if (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4" || algorithm == "NVFP4_AWQ") {
    if (group != 16) return unsupported(fmt::format("{} with groups of {}", algorithm, group));
    return Scheme{WeightSpec::nvfp4(), algorithm == "W4A16_NVFP4" ? ActivationFormat::bf16 : ActivationFormat::nvfp4};
  }
  if (algorithm == "FP8") return Scheme{WeightSpec::fp8_tensor(), ActivationFormat::fp8};
  if (algorithm == "FP8_PB_WO") return Scheme{WeightSpec::fp8_block(), ActivationFormat::fp8};
  if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN") return Scheme{WeightSpec::fp8_channel(), ActivationFormat::fp8};
  if (algorithm == "MXFP8") return Scheme{WeightSpec::mxfp8(), ActivationFormat::mxfp8};
  if (algorithm == "W4A16_AWQ" || algorithm == "INT4_AWQ")
    return Scheme{WeightSpec::int4(group == 16 ? 128 : group), ActivationFormat::bf16};
  return unsupported("modelopt " + algorithm);
}

/// modelopt MIXED_PRECISION: what the map of layers says of the experts.
Result<Scheme> mixed_scheme(const Json& description, Geometry& geometry) {
  const Json* layers = object_of(description, "quantized_layers");
  if (layers == nullptr) return fail("MIXED_PRECISION without quantized_layers");
  std::optional<Scheme> scheme;
  for (const auto& [name, entry] : layers->items()) {
    if (name.find("experts.") == std::string::npos && !name.ends_with("experts")) continue;
    if (name.find("shared_expert") != std::string::npos || !entry.is_object()) continue;
    MOETUNE_TRY(const Scheme one, modelopt_scheme(text_of(entry, "quant_algo"), entry));
    if (scheme && !(scheme->weights == one.weights)) {
      geometry.assumed.push_back("the experts are stored in more than one format; the first one listed was taken");
      break;
    }
    scheme = one;
  }
  if (!scheme) return Scheme{};
  return *scheme;
}

Result<Scheme> read_modelopt(const Json& description, Geometry& geometry) {
  const std::string algorithm = text_of(description, "quant_algo");
  if (algorithm == "MIXED_PRECISION") return mixed_scheme(description, geometry);
  if (!algorithm.empty()) return modelopt_scheme(algorithm, description);
  return fail("modelopt quantisation without quant_algo");
}

/// The group of compressed-tensors that means the experts: one whose target is a pattern for them, else the one for all
/// linear layers.
const Json* group_for_experts(const Json& groups, std::int64_t layer) {
  const Json* linear = nullptr;
  for (const auto& [name, group] : groups.items()) {
    (void)name;
    if (!group.is_object() || !group.contains("targets") || !group["targets"].is_array()) continue;
    for (const auto& target : group["targets"]) {
      if (!target.is_string()) continue;
      const auto& text = target.get_ref<const std::string&>();
      if (text == "Linear") linear = &group;
      if (text != "Linear" && any_of_names({text}, layer)) return &group;
    }
  }
  return linear;
}

Result<Scheme> read_compressed_tensors(const Json& description, std::int64_t layer) {
  const Json* groups = object_of(description, "config_groups");
  if (groups == nullptr) return fail("compressed-tensors quantisation without config_groups");
  const Json* group = group_for_experts(*groups, layer);
  if (group == nullptr) return Scheme{};  // no group means the experts: they are not quantised
  const Json* weights = object_of(*group, "weights");
  if (weights == nullptr) return fail("a compressed-tensors group without weights");
  const Json* inputs = object_of(*group, "input_activations");
  std::string format = text_of(*group, "format");
  if (format.empty()) format = text_of(description, "format");
  const std::string type = text_of(*weights, "type"), strategy = text_of(*weights, "strategy");
  MOETUNE_TRY(const std::int64_t bits, size_of(*weights, "num_bits", 8));
  MOETUNE_TRY(const std::int64_t size, size_of(*weights, "group_size", 128));
  if (type == "float" && bits == 4) {
    if (format == "mxfp4-pack-quantized" || (format != "nvfp4-pack-quantized" && size == 32))
      return Scheme{WeightSpec::mxfp4(), ActivationFormat::bf16};
    return Scheme{WeightSpec::nvfp4(), inputs != nullptr ? ActivationFormat::nvfp4 : ActivationFormat::bf16};
  }
  if (type == "float" && bits == 8) {
    const ActivationFormat activations = inputs != nullptr ? ActivationFormat::fp8 : ActivationFormat::bf16;
    if (strategy == "tensor") return Scheme{WeightSpec::fp8_tensor(), activations};
    if (strategy == "channel") return Scheme{WeightSpec::fp8_channel(), activations};
    if (strategy == "group" && size == 32)
      return Scheme{WeightSpec::mxfp8(), inputs != nullptr ? ActivationFormat::mxfp8 : ActivationFormat::bf16};
    if (strategy == "block") {
      const auto block = weights->find("block_structure");
      std::vector<std::int64_t> sizes;
      if (block == weights->end() || !from_json(*block, sizes) || sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1 ||
          sizes[0] > 4096 || sizes[1] > 4096)
        return fail("compressed-tensors block quantisation without a block_structure of two sizes");
      return Scheme{WeightSpec::fp8_block(sizes[0], sizes[1]), activations};
    }
  }
  if (type == "int" && bits == 4 && (strategy == "group" || strategy == "channel")) {
    const auto symmetric = weights->find("symmetric");
    return Scheme{WeightSpec::int4(size, symmetric != weights->end() && *symmetric == false), ActivationFormat::bf16};
  }
  return unsupported(fmt::format("compressed-tensors {} {} bit {} {}", format, bits, type, strategy));
}

Result<Scheme> read_fp8(const Json& config, const Json& description) {
  if (ConfigView(config).text({"expert_dtype"}).value_or(std::nullopt).value_or("") == "fp4")
    return Scheme{WeightSpec::mxfp4(), ActivationFormat::bf16};
  const auto block = description.find("weight_block_size");
  if (block == description.end() || block->is_null()) return Scheme{WeightSpec::fp8_tensor(), ActivationFormat::fp8};
  std::vector<std::int64_t> sizes;
  if (!from_json(*block, sizes) || sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1 || sizes[0] > 4096 ||
      sizes[1] > 4096)
    return bad_value("weight_block_size", *block, "are two sizes from 1 to 4096");
  if (sizes[0] == 1 && sizes[1] == 32) return Scheme{WeightSpec::mxfp8(), ActivationFormat::mxfp8};
  return Scheme{WeightSpec::fp8_block(sizes[0], sizes[1]), ActivationFormat::fp8};
}

Result<Scheme> read_int4(const Json& description, const std::string& method) {
  MOETUNE_TRY(const std::int64_t bits, size_of(description, description.contains("bits") ? "bits" : "w_bit", 4));
  if (bits != 4) return unsupported(fmt::format("{} with {} bits", method, bits));
  const char* group_key = description.contains("group_size") ? "group_size" : "q_group_size";
  if (const auto group = description.find(group_key); group != description.end() && *group == -1)
    return unsupported(method + " with one group a row");
  MOETUNE_TRY(const std::int64_t group, size_of(description, group_key, 128));
  const auto flag = [&](const char* key, bool otherwise) {
    const auto found = description.find(key);
    return found != description.end() && found->is_boolean() ? found->get<bool>() : otherwise;
  };
  const bool zero = method == "awq" ? flag("zero_point", true) : !flag("sym", true);
  return Scheme{WeightSpec::int4(group, zero), ActivationFormat::bf16};
}

Result<Scheme> read_scheme(const Json& config, const Json& description, Geometry& geometry) {
  const std::string method = text_of(description, "quant_method");
  const std::int64_t layer = geometry.moe_layers.front();
  if (method == "modelopt" || method == "modelopt_fp4" || method == "modelopt_mixed" ||
      (method.empty() && description.contains("quant_algo")))
    return read_modelopt(description, geometry);
  if (method == "compressed-tensors") return read_compressed_tensors(description, layer);
  if (method == "fp8") return read_fp8(config, description);
  if (method == "mxfp8") return Scheme{WeightSpec::mxfp8(), ActivationFormat::mxfp8};
  if (method == "mxfp4" || method == "gpt_oss_mxfp4") return Scheme{WeightSpec::mxfp4(), ActivationFormat::bf16};
  if (method == "awq" || method == "gptq" || method == "gptq_marlin" || method == "awq_marlin")
    return read_int4(description, method.substr(0, method.find('_')));
  return unsupported(method.empty() ? "without quant_method" : method);
}

/// Plain weights: what torch_dtype says.
Result<Scheme> plain_scheme(const Json& config) {
  MOETUNE_TRY(const auto type, ConfigView(config).text({"torch_dtype", "dtype"}));
  return Scheme{type == "float16" ? WeightSpec::fp16() : WeightSpec::bf16(),
                type == "float16" ? ActivationFormat::fp16 : ActivationFormat::bf16};
}

}  // namespace

bool is_excluded(const std::vector<std::string>& patterns, std::string_view module) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, module); });
}

Status read_quantization(const Json& config, const std::optional<Json>& hf_quant_config, Geometry& geometry) {
  MOETUNE_TRY(const Scheme plain, plain_scheme(config));
  geometry.weights = plain.weights;
  geometry.activations = plain.activations;
  const Json* description = ConfigView(config).find({"quantization_config", "compression_config"});
  // modelopt's own file is the fuller one where both are there.
  if (hf_quant_config && object_of(*hf_quant_config, "quantization") != nullptr)
    description = object_of(*hf_quant_config, "quantization");
  if (description == nullptr) return {};
  if (!description->is_object()) return bad_value("quantization_config", *description, "is an object");
  MOETUNE_TRY(const Scheme scheme, read_scheme(config, *description, geometry));
  MOETUNE_TRY(const auto patterns, patterns_of(*description));
  const auto kept = std::count_if(geometry.moe_layers.begin(), geometry.moe_layers.end(),
                                  [&](std::int64_t layer) { return any_of_names(patterns, layer); });
  if (kept == static_cast<std::ptrdiff_t>(geometry.moe_layers.size())) return {};
  if (kept > 0)
    geometry.assumed.push_back(fmt::format("{} of {} MoE layers are excluded from quantisation; the others are meant",
                                           kept, geometry.moe_layers.size()));
  geometry.weights = scheme.weights;
  geometry.activations = scheme.activations;
  return {};
}

}  // namespace moetune
