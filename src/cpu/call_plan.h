// The pairs of one call, grouped by expert.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "model/problem.h"

namespace moetune {

/// The pairs of one expert: [first, first + pairs) of the plan.
struct ExpertPairs {
  std::int32_t expert = 0;
  std::int64_t first = 0, pairs = 0;
};

/// Who needs what in one call. Room is kept for the largest call, so that building it allocates nothing.
class CallPlan {
 public:
  CallPlan() = default;
  CallPlan(const Problem& problem, std::int64_t max_tokens);

  /// Sorts the pairs by expert, those of one expert by token; pairs with id -1 are left out. Errors: sizes that do not
  /// match the problem, more tokens than there is room for, ids out of range.
  [[nodiscard]] Status build(const Call& call);

  [[nodiscard]] std::int64_t tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t pairs() const { return static_cast<std::int64_t>(token_.size()); }
  /// Experts that have pairs, ascending.
  [[nodiscard]] std::span<const ExpertPairs> experts() const { return experts_; }
  /// The token and the routing weight of each pair.
  [[nodiscard]] std::span<const std::int32_t> token() const { return token_; }
  [[nodiscard]] std::span<const float> weight() const { return weight_; }

 private:
  [[nodiscard]] Status check(const Call& call) const;

  std::int64_t expert_count_ = 0, hidden_ = 0, max_tokens_ = 0, max_pairs_ = 0, tokens_ = 0;
  std::vector<ExpertPairs> experts_;
  std::vector<std::int32_t> token_;
  std::vector<float> weight_;
  std::vector<std::int64_t> position_;  ///< per expert: where its next pair goes
};

}  // namespace moetune
