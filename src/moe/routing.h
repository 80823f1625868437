// Who computes what: which experts each token goes to, and with which weight.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "model/problem.h"

namespace moetune {

/// The choice of one call. `ids` are local expert numbers (0 … experts-1 of the Problem), -1 where the pair is another
/// device's.
struct Routing {
  std::int64_t tokens = 0, top_k = 0;
  std::vector<std::int32_t> ids;  ///< [tokens, top_k]
  std::vector<float> weights;     ///< [tokens, top_k]

  [[nodiscard]] std::int64_t active_experts() const;  ///< distinct local experts
  [[nodiscard]] std::int64_t pairs() const;           ///< entries that are not -1
};

/// The number of global expert `global` on this device, -1 where another device holds it.
[[nodiscard]] std::int32_t local_expert(const Problem& problem, std::int64_t global);

/// The router: logits [tokens, experts_global] to a choice, as Router describes; `correction_bias` has experts_global
/// values or is empty. The chosen come best first; equal scores: the lower expert first. A logit of -inf masks its
/// expert. Errors: logits that are NaN, +inf or all -inf, sizes and groups that do not match, a score that is
/// recognised only.
[[nodiscard]] Result<Routing> route(const Problem& problem, std::span<const float> logits, std::int64_t tokens,
                                    std::span<const float> correction_bias = {});

/// How benchmark traffic is spread over experts.
///   uniform: top-k of all, each set equally likely;  power_law: expert popularity ~ rank^-1.2;  one_hot: every token's
///   first choice is the same expert, the rest uniform;  round_robin: as even as can be.
enum class RoutingKind { uniform, power_law, one_hot, round_robin };

template <>
struct EnumNames<RoutingKind> {
  static constexpr std::array<std::string_view, 4> names = {"uniform", "power_law", "one_hot", "round_robin"};
};

/// A choice from a seed; the same on every machine. Weights are positive and sum to router.scaling per token over all
/// global experts. The first tokens of a longer call are the same as those of a shorter one. The hot expert of one_hot
/// is one of this device's. Without 1 <= top_k <= experts_global there is no choice: no tokens.
[[nodiscard]] Routing random_routing(const Problem& problem, std::int64_t tokens, RoutingKind kind, std::uint64_t seed);

/// Choices meant to break kernels: all tokens to one expert, only the last expert, every pair -1, one token, duplicates
/// of an expert in one token, zero weights, … each with a name for messages. Up to 67 tokens, or as many as experts.
/// None for a problem without experts.
struct NamedRouting {
  std::string_view name;
  Routing routing;
};
[[nodiscard]] std::vector<NamedRouting> hostile_routings(const Problem& problem, std::uint64_t seed);

}  // namespace moetune
