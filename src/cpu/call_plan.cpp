#include "cpu/call_plan.h"

#include <fmt/format.h>

namespace moetune {

CallPlan::CallPlan(const Problem& problem, std::int64_t max_tokens)
    : expert_count_(problem.experts),
      hidden_(problem.hidden),
      max_tokens_(max_tokens),
      max_pairs_(max_tokens * problem.top_k) {
  experts_.reserve(static_cast<std::size_t>(expert_count_));
  token_.reserve(static_cast<std::size_t>(max_pairs_));
  weight_.reserve(static_cast<std::size_t>(max_pairs_));
  position_.resize(static_cast<std::size_t>(expert_count_));
}

Status CallPlan::check(const Call& call) const {
  if (call.routing == nullptr) return fail("the call has no routing");
  const Routing& routing = *call.routing;
  if (routing.tokens < 0 || routing.tokens > max_tokens_)
    return fail(fmt::format("{} tokens in a call; configured for 0 to {}", routing.tokens, max_tokens_));
  const auto pairs = static_cast<std::size_t>(routing.tokens * routing.top_k);
  if (routing.top_k < 0 || routing.ids.size() != pairs || routing.weights.size() != pairs)
    return fail(fmt::format("routing of {} tokens x {} has {} ids and {} weights", routing.tokens, routing.top_k,
                            routing.ids.size(), routing.weights.size()));
  if (std::ssize(routing.ids) > max_pairs_)
    return fail(fmt::format("{} pairs in a call; configured for up to {}", routing.ids.size(), max_pairs_));
  const auto values = static_cast<std::size_t>(routing.tokens * hidden_);
  if (call.input.size() != values || call.output.size() != values)
    return fail(fmt::format("{} tokens of {} with {} input and {} output values", routing.tokens, hidden_,
                            call.input.size(), call.output.size()));
  for (const std::int32_t id : routing.ids)
    if (id < -1 || id >= expert_count_)
      return fail(fmt::format("expert {} in the routing; there are {}", id, expert_count_));
  return {};
}

Status CallPlan::build(const Call& call) {
  MOETUNE_CHECK(check(call));
  const Routing& routing = *call.routing;
  tokens_ = routing.tokens;
  experts_.clear();
  position_.assign(position_.size(), 0);
  for (const std::int32_t id : routing.ids)
    if (id >= 0) ++position_[static_cast<std::size_t>(id)];
  std::int64_t first = 0;
  for (std::int32_t expert = 0; expert < expert_count_; ++expert) {
    std::int64_t& position = position_[static_cast<std::size_t>(expert)];
    const std::int64_t pairs = position;
    if (pairs != 0) experts_.push_back({expert, first, pairs});
    position = first;
    first += pairs;
  }
  token_.resize(static_cast<std::size_t>(first));
  weight_.resize(static_cast<std::size_t>(first));
  for (std::size_t pair = 0; pair < routing.ids.size(); ++pair) {
    const std::int32_t id = routing.ids[pair];
    if (id < 0) continue;
    const auto at = static_cast<std::size_t>(position_[static_cast<std::size_t>(id)]++);
    token_[at] = static_cast<std::int32_t>(static_cast<std::int64_t>(pair) / routing.top_k);
    weight_[at] = routing.weights[pair];
  }
  return {};
}

}  // namespace moetune
