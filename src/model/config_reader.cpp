#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/config_view.h"
#include "model/family.h"
#include "model/model.h"
#include "model/quant_reader.h"

namespace moetune {
namespace {

constexpr std::int64_t kMaxExperts = 65536;
constexpr std::int64_t kMaxTopK = 1024;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxLayers = 100'000;

// What each thing is called. A new family's spelling goes here; what its file leaves unsaid goes to data/families.toml.
constexpr Aliases kExperts = {"num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"};
constexpr Aliases kTopK = {"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k",
                           "top_k_experts",       "experts_per_token"};
constexpr Aliases kHidden = {"hidden_size", "d_model", "dim", "n_embd"};
constexpr Aliases kExpertWidth = {"moe_intermediate_size", "expert_ffn_hidden_size", "expert_hidden_dim",
                                  "moe_ffn_hidden_size"};
constexpr Aliases kDenseWidth = {"intermediate_size", "ffn_hidden_size", "ffn_dim"};
constexpr Aliases kLayers = {"num_hidden_layers", "n_layers", "num_layers", "n_layer"};
constexpr Aliases kSharedCount = {"n_shared_experts", "num_shared_experts", "num_shared_expert",
                                  "moe_num_shared_experts"};
constexpr Aliases kSharedWidth = {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
                                  "shared_intermediate_size", "share_expert_dim"};
constexpr Aliases kLatent = {"moe_latent_size", "routed_expert_hidden_size"};
constexpr Aliases kScore = {"scoring_func", "score_function", "moe_router_activation_func", "moe_router_activation"};
constexpr Aliases kGroups = {"n_group", "num_expert_group", "num_expert_groups"};
constexpr Aliases kTopGroups = {"topk_group", "num_expert_groups_per_tok"};
constexpr Aliases kRenormalize = {"norm_topk_prob", "moe_renormalize", "norm_expert_weight",
                                  "moe_normalize_expert_weights"};
constexpr Aliases kScaling = {"routed_scaling_factor", "moe_router_scaling_factor", "moe_routed_scaling_factor",
                              "routed_scale"};
constexpr Aliases kBias = {"use_routing_bias", "use_expert_bias", "moe_router_enable_expert_bias",
                           "use_moe_router_bias"};
constexpr Aliases kOnInput = {"moe_apply_router_weight_on_input", "apply_router_weight_on_input"};
constexpr Aliases kActivation = {"mlp_hidden_act", "hidden_act", "hidden_activation", "activation_function"};
constexpr Aliases kFirstDense = {"first_k_dense_replace", "num_dense_layers"};
constexpr Aliases kFrequency = {"moe_layer_freq", "moe_layer_frequency", "route_every_n"};

/// Reads one Geometry; each step is one concern.
class Reader {
 public:
  Reader(const Json& config, Geometry& geometry) : view_(config), g_(geometry) {}

  Status read() {
    MOETUNE_CHECK(read_names());
    MOETUNE_CHECK(read_sizes());
    MOETUNE_CHECK(read_shared());
    MOETUNE_CHECK(read_layers());
    MOETUNE_CHECK(read_router());
    return read_activation();
  }

 private:
  void assume(std::string sentence) { g_.assumed.push_back(std::move(sentence)); }

  Status read_names() {
    MOETUNE_TRY(const auto type, view_.text({"model_type"}));
    g_.model_type = type.value_or("");
    if (const Json* list = view_.find({"architectures"});
        list != nullptr && list->is_array() && !list->empty() && list->front().is_string())
      g_.architecture = list->front().get<std::string>().substr(0, 200);
    family_ = find_family(g_.model_type);
    if (family_ == nullptr)
      assume(fmt::format("model_type '{}' is not one of the known families: its keys were read by their usual meaning",
                         g_.model_type.substr(0, 60)));
    return {};
  }

  Result<std::int64_t> required(const Aliases& names, std::int64_t low, std::int64_t high, std::string_view what) {
    MOETUNE_TRY(const auto value, view_.integer(names, low, high));
    if (value) return *value;
    std::string looked;
    for (const auto name : names) looked += (looked.empty() ? "" : ", ") + std::string(name);
    return fail(fmt::format("no {} in the config: none of {}", what, looked));
  }

  Status read_sizes() {
    if (view_.find(kExperts) == nullptr) {
      std::string looked;
      for (const auto name : kExperts) looked += (looked.empty() ? "" : ", ") + std::string(name);
      return fail("not a Mixture-of-Experts model: its config has none of " + looked);
    }
    MOETUNE_TRY(g_.experts, required(kExperts, 1, kMaxExperts, "number of experts"));
    MOETUNE_TRY(g_.top_k, required(kTopK, 1, kMaxTopK, "top-k"));
    if (g_.top_k > g_.experts)
      return fail(
          fmt::format("{}: {} experts a token, but there are only {}", view_.name_of(kTopK), g_.top_k, g_.experts));
    MOETUNE_TRY(g_.hidden, required(kHidden, 1, kMaxWidth, "hidden size"));
    MOETUNE_TRY(const auto latent, view_.integer(kLatent, 1, kMaxWidth));
    g_.expert_hidden = latent.value_or(g_.hidden);
    MOETUNE_TRY(const auto identity, view_.integer({"zero_expert_num"}, 0, kMaxExperts));
    g_.identity_experts = identity.value_or(0);
    return read_width();
  }

  Status read_width() {
    if (family_ != nullptr && family_->experts_width) {
      const std::string_view key = *family_->experts_width;
      MOETUNE_TRY(g_.intermediate, required({key}, 1, kMaxWidth, "expert width"));
      return {};
    }
    MOETUNE_TRY(const auto width, view_.integer(kExpertWidth, 1, kMaxWidth));
    if (width) {
      g_.intermediate = *width;
      return {};
    }
    MOETUNE_TRY(g_.intermediate, required(kDenseWidth, 1, kMaxWidth, "expert width"));
    if (family_ == nullptr)
      assume(fmt::format("the experts are {} wide, from {}", g_.intermediate, view_.name_of(kDenseWidth)));
    return {};
  }

  Status read_shared() {
    MOETUNE_TRY(const auto count, view_.integer(kSharedCount, 0, kMaxExperts));
    MOETUNE_TRY(const auto width, view_.integer(kSharedWidth, 0, kMaxWidth));
    if (family_ != nullptr && family_->shared_width) {
      const std::string_view key = *family_->shared_width;
      g_.shared_experts = family_->shared_experts.value_or(1);
      MOETUNE_TRY(g_.shared_intermediate, required({key}, 1, kMaxWidth, "shared expert width"));
      return {};
    }
    g_.shared_experts = count.value_or(width.value_or(0) > 0 ? 1 : 0);
    // A width key gives that of all shared experts together; a count alone means as many as that of a routed expert's
    // size.
    g_.shared_intermediate = g_.shared_experts == 0 ? 0 : width.value_or(g_.shared_experts * g_.intermediate);
    if (g_.shared_intermediate == 0) g_.shared_experts = 0;
    return {};
  }

  // ------------------------------------------------------------------------------------------------- which layers hold
  // experts

  template <class Holds>
  void keep_layers(const Holds& holds) {
    for (std::int64_t layer = 0; layer < g_.layers; ++layer)
      if (holds(layer)) g_.moe_layers.push_back(layer);
  }

  Status read_layers() {
    MOETUNE_TRY(const auto layers, view_.integer(kLayers, 1, kMaxLayers));
    if (!layers) {
      g_.layers = 1;
      g_.moe_layers = {0};
      assume("the number of layers is not in the config: one MoE layer");
      return {};
    }
    g_.layers = *layers;
    for (const auto step : {&Reader::layers_by_name, &Reader::layers_by_pattern, &Reader::layers_by_list,
                            &Reader::layers_by_range, &Reader::layers_by_period, &Reader::layers_by_step}) {
      MOETUNE_TRY(const bool known, (this->*step)());
      if (known) break;
    }
    if (g_.moe_layers.empty())
      return fail(fmt::format("none of the {} layers holds experts by the rule in the config", g_.layers));
    return {};
  }

  /// One name a layer: mlp_layer_types, layers_block_type.
  Result<bool> layers_by_name() {
    constexpr Aliases kNames = {"mlp_layer_types", "layers_block_type"};
    const Json* list = view_.find(kNames);
    if (list == nullptr) return false;
    if (!list->is_array() || list->size() != static_cast<std::size_t>(g_.layers))
      return bad_value(view_.name_of(kNames), *list, fmt::format("is a list of {} names, one a layer", g_.layers));
    for (const auto& item : *list)
      if (!item.is_string()) return bad_value(view_.name_of(kNames), item, "is a name");
    keep_layers([&](std::int64_t layer) {
      const auto& name = (*list)[static_cast<std::size_t>(layer)].get_ref<const std::string&>();
      return name == "sparse" || name == "moe";
    });
    return true;
  }

  /// One letter a layer, E for experts.
  Result<bool> layers_by_pattern() {
    const Json* pattern = view_.find({"hybrid_override_pattern"});
    if (pattern == nullptr) return false;
    if (!pattern->is_string() || pattern->get_ref<const std::string&>().size() != static_cast<std::size_t>(g_.layers))
      return bad_value("hybrid_override_pattern", *pattern,
                       fmt::format("is a text of {} letters, one a layer", g_.layers));
    keep_layers([&](std::int64_t layer) {
      return pattern->get_ref<const std::string&>()[static_cast<std::size_t>(layer)] == 'E';
    });
    return true;
  }

  /// moe_layers: the indices; moe_layers_enum: the same as text; moe_layer_freq as a list: 0 or 1 a layer.
  Result<bool> layers_by_list() {
    const auto most = static_cast<std::size_t>(g_.layers);
    if (const Json* flags = view_.find(kFrequency); flags != nullptr && flags->is_array()) {
      MOETUNE_TRY(const auto list, view_.integers(kFrequency, 0, 1, most));
      if (list->size() != most)
        return bad_value(view_.name_of(kFrequency), *flags,
                         fmt::format("is a list of {} numbers, one a layer", g_.layers));
      keep_layers([&](std::int64_t layer) { return (*list)[static_cast<std::size_t>(layer)] == 1; });
      return true;
    }
    if (const Json* text = view_.find({"moe_layers_enum"}); text != nullptr && text->is_string())
      return layers_from_text(text->get<std::string>());
    MOETUNE_TRY(const auto list, view_.integers({"moe_layers"}, 0, g_.layers - 1, most));
    if (!list || list->empty()) return false;
    keep_layers([&](std::int64_t layer) { return std::find(list->begin(), list->end(), layer) != list->end(); });
    return true;
  }

  Result<bool> layers_from_text(const std::string& text) {
    std::vector<bool> holds(static_cast<std::size_t>(g_.layers), false);
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
      std::int64_t layer = 0;
      const auto [next, problem] = std::from_chars(at, end, layer);
      if (problem != std::errc() || layer < 0 || layer >= g_.layers || (next != end && *next != ','))
        return bad_value("moe_layers_enum", Json(text),
                         fmt::format("are layer numbers from 0 to {} with commas between", g_.layers - 1));
      holds[static_cast<std::size_t>(layer)] = true;
      at = next == end ? end : next + 1;
    }
    keep_layers([&](std::int64_t layer) { return holds[static_cast<std::size_t>(layer)]; });
    return true;
  }

  /// ERNIE: from, to, every.
  Result<bool> layers_by_range() {
    MOETUNE_TRY(const auto first, view_.integer({"moe_layer_start_index"}, 0, kMaxLayers));
    if (!first) return false;
    MOETUNE_TRY(const auto last, view_.integer({"moe_layer_end_index"}, -1, kMaxLayers));
    MOETUNE_TRY(const auto every, view_.integer({"moe_layer_interval"}, 1, kMaxLayers));
    const std::int64_t end = last.value_or(-1) < 0 ? g_.layers - 1 : *last;
    keep_layers(
        [&](std::int64_t layer) { return layer >= *first && layer <= end && (layer + 1) % every.value_or(1) == 0; });
    return true;
  }

  /// Jamba's period and offset, Llama 4's interleave step.
  Result<bool> layers_by_period() {
    MOETUNE_TRY(const auto period, view_.integer({"expert_layer_period"}, 1, kMaxLayers));
    MOETUNE_TRY(const auto offset, view_.integer({"expert_layer_offset"}, 0, kMaxLayers));
    MOETUNE_TRY(const auto interleave, view_.integer({"interleave_moe_layer_step"}, 1, kMaxLayers));
    if (period) keep_layers([&](std::int64_t layer) { return layer % *period == offset.value_or(0) % *period; });
    if (!period && interleave) keep_layers([&](std::int64_t layer) { return (layer + 1) % *interleave == 0; });
    return period || interleave;
  }

  /// The common rule: the first few dense, then every so many; Qwen's step and exceptions.
  Result<bool> layers_by_step() {
    MOETUNE_TRY(const auto dense, view_.integer(kFirstDense, 0, kMaxLayers));
    MOETUNE_TRY(const auto every, view_.integer(kFrequency, 1, kMaxLayers));
    MOETUNE_TRY(const auto step, view_.integer({"decoder_sparse_step"}, 1, kMaxLayers));
    MOETUNE_TRY(const auto except,
                view_.integers({"mlp_only_layers"}, 0, kMaxLayers, static_cast<std::size_t>(kMaxLayers)));
    keep_layers([&](std::int64_t layer) {
      if (except && std::find(except->begin(), except->end(), layer) != except->end()) return false;
      return layer >= dense.value_or(0) && layer % every.value_or(1) == 0 && (layer + 1) % step.value_or(1) == 0;
    });
    return true;
  }

  // --------------------------------------------------------------------------------------------------------------------
  // router

  Status read_score() {
    MOETUNE_TRY(const auto score, view_.text(kScore));
    if (score) {
      // The file's word names the function; whether it acts before or after the choice is the family's business.
      const auto named =
          *score == "sqrtsoftplus" ? std::optional(RouterScore::sqrt_softplus) : parse_enum<RouterScore>(*score);
      if (!named) return bad_value(view_.name_of(kScore), Json(*score), "are softmax, sigmoid and sqrtsoftplus");
      g_.router.score = *named;
      return {};
    }
    g_.router.score = family_ != nullptr ? family_->score.value_or(RouterScore::softmax) : RouterScore::softmax;
    if (family_ == nullptr) assume("the router's score is softmax over all experts");
    return {};
  }

  Status read_router() {
    Router& r = g_.router;
    const Family none;
    const Family& family = family_ != nullptr ? *family_ : none;
    MOETUNE_CHECK(read_score());
    MOETUNE_TRY(const auto bias, view_.boolean(kBias));
    MOETUNE_TRY(const auto method, view_.text({"topk_method"}));
    r.correction_bias = bias.value_or(method ? *method == "noaux_tc" : family.correction_bias.value_or(false));
    MOETUNE_TRY(const auto groups, view_.integer(kGroups, 1, g_.experts));
    MOETUNE_TRY(const auto top_groups, view_.integer(kTopGroups, 1, groups.value_or(1)));
    r.groups = groups.value_or(1);
    r.top_groups = top_groups.value_or(r.groups);
    if (g_.experts % r.groups != 0)
      return fail(fmt::format("{} experts do not divide into {} groups", g_.experts, r.groups));
    if (r.top_groups * (g_.experts / r.groups) < g_.top_k)
      return fail(fmt::format("top-{} of {} groups of {} experts: too few to choose from", g_.top_k, r.top_groups,
                              g_.experts / r.groups));
    r.group_score = family.group_score.value_or(r.correction_bias ? GroupScore::top2_sum : GroupScore::max);
    MOETUNE_TRY(const auto renormalize, view_.boolean(kRenormalize));
    r.renormalize = renormalize.value_or(family.renormalize.value_or(true));
    if (!renormalize && family_ == nullptr) assume("the chosen weights are divided by their sum");
    MOETUNE_TRY(const auto scaling, view_.number(kScaling, 0, 1e6));
    r.scaling = scaling.value_or(family.scaling.value_or(1.0));
    MOETUNE_TRY(const auto on_input, view_.boolean(kOnInput));
    r.weight_on_input = on_input.value_or(family.weight_on_input.value_or(false));
    return {};
  }

  // ----------------------------------------------------------------------------------------------------------------
  // activation

  Status read_activation() {
    const Family none;
    const Family& family = family_ != nullptr ? *family_ : none;
    Activation& a = g_.activation;
    g_.gated = family.gated.value_or(true);
    g_.expert_bias = family.expert_bias.value_or(false);
    MOETUNE_TRY(auto name, view_.text(kActivation));
    if (const Json* act = view_.find({"ffn_act_fn"});
        !name && act != nullptr && act->is_object() && act->contains("name") && (*act)["name"].is_string())
      name = (*act)["name"].get<std::string>();
    MOETUNE_TRY(const auto limit, view_.number({"swiglu_limit"}, 0, 1e6));
    MOETUNE_TRY(const auto alpha, view_.number({"swiglu_alpha"}, 0, 1e6));
    a.limit = limit.value_or(family.limit.value_or(a.limit));
    a.alpha = alpha.value_or(family.alpha.value_or(a.alpha));
    if (family.limited && limit) {
      a.kind = *family.limited;
      return {};
    }
    if (family.activation == ActivationKind::swiglu_oai) {  // its config says "silu" and means this
      a.kind = ActivationKind::swiglu_oai;
      return {};
    }
    if (!name) {
      a.kind = family.activation.value_or(ActivationKind::silu);
      if (family_ == nullptr) assume("the activation is silu");
      return {};
    }
    constexpr std::pair<std::string_view, ActivationKind> kKinds[] = {{"silu", ActivationKind::silu},
                                                                      {"swish", ActivationKind::silu},
                                                                      {"swiglu", ActivationKind::silu},
                                                                      {"gelu", ActivationKind::gelu},
                                                                      {"gelu_new", ActivationKind::gelu_tanh},
                                                                      {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
                                                                      {"relu2", ActivationKind::relu2},
                                                                      {"swigluoai", ActivationKind::swiglu_oai},
                                                                      {"swiglu_oai", ActivationKind::swiglu_oai},
                                                                      {"situ", ActivationKind::situ}};
    const auto found =
        std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& kind) { return kind.first == *name; });
    if (found == std::end(kKinds))
      return bad_value(view_.name_of(kActivation), Json(*name),
                       "are silu, gelu, gelu_pytorch_tanh, relu2, swigluoai and situ");
    a.kind = found->second;
    return {};
  }

  ConfigView view_;
  Geometry& g_;
  const Family* family_ = nullptr;
};

}  // namespace

Result<Geometry> read_geometry(const Json& config, const std::optional<Json>& hf_quant_config) {
  if (!config.is_object()) return fail("a config is a JSON object");
  Geometry geometry;
  MOETUNE_CHECK(Reader(config, geometry).read());
  MOETUNE_CHECK(read_quantization(config, hf_quant_config, geometry));
  return geometry;
}

}  // namespace moetune
