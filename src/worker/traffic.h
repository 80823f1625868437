// The calls that a workload consists of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/evaluator.h"
#include "model/problem.h"

namespace moetune {

/// Calls that differ in routing and input, to be run round and round. Experts are renamed call by call so that each
/// call touches those that were touched longest ago: what one layer of a server meets, since the other layers' weights
/// pass through the cache in between. As many calls as it takes to go through all experts, or where that is more than
/// 64, to touch more than twice the last-level cache.
class Traffic {
 public:
  /// `cache_bytes`: the last-level cache; 0: unknown. The same problem, workload and cache give the same calls.
  [[nodiscard]] static Traffic make(const Problem& problem, const Workload& workload, std::int64_t cache_bytes);

  [[nodiscard]] std::span<const std::vector<std::uint16_t>> inputs() const { return inputs_; }
  [[nodiscard]] std::span<const Routing> routings() const { return routings_; }
  /// All write to the same output.
  [[nodiscard]] std::vector<Call> calls();

  /// Fills the output, and as much again before and after it as one token, with NaNs that no arithmetic makes.
  void poison();
  /// Whether a value is one of those.
  [[nodiscard]] static bool is_poison(std::uint16_t value);
  /// Values that were written outside the output since.
  [[nodiscard]] std::int64_t stray_writes() const;

  [[nodiscard]] double mean_active_experts() const;
  [[nodiscard]] double mean_pairs() const;
  /// Memory that it holds.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  [[nodiscard]] std::span<std::uint16_t> output();

  std::int64_t hidden_ = 0;
  std::vector<std::vector<std::uint16_t>> inputs_;  ///< [tokens, hidden] each
  std::vector<Routing> routings_;
  std::vector<std::uint16_t> output_;  ///< [1 + tokens + 1, hidden]
};

}  // namespace moetune
