// The MoE layer that one device holds: a Geometry cut by tensor and expert parallelism.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "model/geometry.h"

namespace moetune {

/// The routed experts of one layer on one device. This is what a backend computes and what is timed: routing is given,
/// a shared expert is an ordinary dense MLP beside it and is not part of it.
struct Problem {
  std::string model;
  std::int64_t experts = 0;         ///< held here: all of them, or 1/EP
  std::int64_t experts_global = 0;  ///< of the whole model
  std::int64_t first_expert = 0;    ///< global index of local expert 0
  std::int64_t top_k = 0;
  std::int64_t hidden = 0;        ///< H: columns of gate/up, rows of down (expert_hidden of the Geometry)
  std::int64_t intermediate = 0;  ///< I of one expert on this device (after TP)
  std::int64_t tp = 1, ep = 1;
  bool gated = true;
  bool bias = false;
  Activation activation;
  Router router;
  WeightSpec weights;
  ActivationFormat activations = ActivationFormat::bf16;

  bool operator==(const Problem&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("model", self.model);
    visit("experts", self.experts);
    visit("experts_global", self.experts_global);
    visit("first_expert", self.first_expert);
    visit("top_k", self.top_k);
    visit("hidden", self.hidden);
    visit("intermediate", self.intermediate);
    visit("tp", self.tp);
    visit("ep", self.ep);
    visit("gated", self.gated);
    visit("bias", self.bias);
    visit("activation", self.activation);
    visit("router", self.router);
    visit("weights", self.weights);
    visit("activations", self.activations);
  }
};

/// Cuts the model for one device of `tp` × `ep`, rank 0 of each unless said. Experts stay whole under EP and lose
/// intermediate columns under TP. Errors name the numbers and the nearest parallelism that divides (also by the weight
/// format's blocks).
struct Cut {
  std::int64_t tp = 1, ep = 1, tp_rank = 0, ep_rank = 0;
};
[[nodiscard]] Result<Problem> cut(const Geometry& geometry, const Cut& how);

/// Operations of the layer for `pairs` (token, expert) pairs: 2 per multiply-add of the projections; nothing else is
/// counted.
[[nodiscard]] double layer_flops(const Problem& problem, std::int64_t pairs);

/// Bytes of one expert's projections, scales and biases as stored.
[[nodiscard]] std::int64_t expert_bytes(const Problem& problem);

/// Least bytes the layer moves: touched experts once, bf16 input and output of every token once.
[[nodiscard]] std::int64_t layer_bytes(const Problem& problem, std::int64_t tokens, std::int64_t active_experts);

}  // namespace moetune
