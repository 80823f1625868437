// What a model's MoE layer is, independent of how many devices share it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "formats/spec.h"

namespace moetune {

/// The function between the two projections of an expert. With gate g and up u (gated) or u alone:
///   silu: silu(g)·u;  gelu: gelu_erf(g)·u;  gelu_tanh: gelu_tanh(g)·u;  relu2: relu(g)²·u (not gated: relu(u)²,
///   likewise the others) silu_clamped: g' = min(g, limit), u' = clamp(u, ±limit), silu(g')·u'  (DeepSeek-V4)
///   swiglu_oai: g' = min(g, limit), u' = clamp(u, ±limit), g'·sigmoid(alpha·g')·(u' + 1)  (gpt-oss, MiniMax-M3)
///   situ: Kimi-K3's; recognised, computed by nothing yet
enum class ActivationKind { silu, gelu, gelu_tanh, relu2, silu_clamped, swiglu_oai, situ };

template <>
struct EnumNames<ActivationKind> {
  static constexpr std::array<std::string_view, 7> names = {"silu",         "gelu",       "gelu_tanh", "relu2",
                                                            "silu_clamped", "swiglu_oai", "situ"};
};

/// How logits become scores.
///   softmax: over all experts;  sigmoid: each by itself;  sqrt_softplus: sqrt(log(1 + exp(x))) (DeepSeek-V4)
///   softmax_topk: top-k on logits, then softmax over the chosen (gpt-oss, Mixtral);  sigmoid_topk: top-k on logits,
///   then sigmoid (Llama 4) sparsemixer: Phi-3.5's; recognised, computed by nothing yet
enum class RouterScore { softmax, sigmoid, sqrt_softplus, softmax_topk, sigmoid_topk, sparsemixer };

template <>
struct EnumNames<RouterScore> {
  static constexpr std::array<std::string_view, 6> names = {"softmax",      "sigmoid",      "sqrt_softplus",
                                                            "softmax_topk", "sigmoid_topk", "sparsemixer"};
};

/// How a group of experts is ranked in grouped top-k: by its best score (DeepSeek-V2) or the sum of its two best (V3,
/// noaux_tc).
enum class GroupScore { max, top2_sum };

template <>
struct EnumNames<GroupScore> {
  static constexpr std::array<std::string_view, 2> names = {"max", "top2_sum"};
};

struct Router {
  RouterScore score = RouterScore::softmax;
  bool correction_bias =
      false;                    ///< a learned bias added to scores for the choice only; weights use the unbiased scores
  std::int64_t groups = 1;      ///< n_group; 1: no grouping
  std::int64_t top_groups = 1;  ///< topk_group
  GroupScore group_score = GroupScore::max;
  bool renormalize = true;       ///< chosen weights divided by their sum
  double scaling = 1.0;          ///< routed_scaling_factor, multiplies the weights last
  bool weight_on_input = false;  ///< the routing weight multiplies the expert's input instead of its output (Llama 4)

  bool operator==(const Router&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("score", self.score);
    visit("correction_bias", self.correction_bias);
    visit("groups", self.groups);
    visit("top_groups", self.top_groups);
    visit("group_score", self.group_score);
    visit("renormalize", self.renormalize);
    visit("scaling", self.scaling);
    visit("weight_on_input", self.weight_on_input);
  }
};

struct Activation {
  ActivationKind kind = ActivationKind::silu;
  double alpha = 1.702;  ///< swiglu_oai only
  double limit = 7.0;    ///< swiglu_oai and silu_clamped only

  bool operator==(const Activation&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("kind", self.kind);
    visit("alpha", self.alpha);
    visit("limit", self.limit);
  }
};

/// A model's MoE layer. Sizes are those of the whole model; Problem is what one device holds of it.
struct Geometry {
  std::string model;       ///< as the user named it, or the folder's name
  std::string model_type;  ///< config.json's
  std::string architecture;
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t hidden = 0;         ///< width of the residual stream
  std::int64_t expert_hidden = 0;  ///< what the experts see; differs from hidden in latent MoE only
  std::int64_t intermediate = 0;   ///< of one routed expert
  std::int64_t shared_experts = 0;
  std::int64_t shared_intermediate = 0;  ///< of all shared experts together
  std::int64_t identity_experts = 0;     ///< zero-compute experts behind the real ones (LongCat)
  std::int64_t layers = 0;
  std::vector<std::int64_t> moe_layers;  ///< indices of the layers that hold experts, ascending
  bool gated = true;                     ///< gate and up projections; false: up only
  bool expert_bias = false;              ///< biases on the expert projections
  Activation activation;
  Router router;
  WeightSpec weights;
  ActivationFormat activations = ActivationFormat::bf16;
  std::vector<std::string> assumed;  ///< what the file did not say and was taken for granted, one sentence each

  bool operator==(const Geometry&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("model", self.model);
    visit("model_type", self.model_type);
    visit("architecture", self.architecture);
    visit("experts", self.experts);
    visit("top_k", self.top_k);
    visit("hidden", self.hidden);
    visit("expert_hidden", self.expert_hidden);
    visit("intermediate", self.intermediate);
    visit("shared_experts", self.shared_experts);
    visit("shared_intermediate", self.shared_intermediate);
    visit("identity_experts", self.identity_experts);
    visit("layers", self.layers);
    visit("moe_layers", self.moe_layers);
    visit("gated", self.gated);
    visit("expert_bias", self.expert_bias);
    visit("activation", self.activation);
    visit("router", self.router);
    visit("weights", self.weights);
    visit("activations", self.activations);
    visit("assumed", self.assumed);
  }
};

}  // namespace moetune
