// The calls that a workload consists of.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/evaluator.h"
#include "model/problem.h"

namespace moetune {

/// Calls that differ in routing and input, to be run round and round. Experts are renamed call by call so that each
/// call touches those that were touched longest ago: what one layer of a server meets, since the other layers' weights
/// pass through the cache in between. As many calls as it takes to go through all experts, within bounds on number and
/// memory.
struct Traffic {
  std::vector<std::vector<std::uint16_t>> inputs;
  std::vector<Routing> routings;
  std::vector<std::uint16_t> output;  ///< shared by all calls: [tokens, hidden]

  [[nodiscard]] std::vector<Call> calls();
  [[nodiscard]] double mean_active_experts() const;
  [[nodiscard]] double mean_pairs() const;
};
[[nodiscard]] Traffic make_traffic(const Problem& problem, const Workload& workload);

}  // namespace moetune
