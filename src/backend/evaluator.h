// Asks what a candidate does on a workload. The search asks; worker/ answers by running it in a child process, tests by
// a table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/config.h"
#include "backend/outcome.h"
#include "moe/routing.h"

namespace moetune {

struct Candidate {
  std::string backend;  ///< id, e.g. "moetune:cpu_decode"
  Config config;

  bool operator==(const Candidate&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("backend", self.backend);
    visit("config", self.config);
  }
};

/// One row of a table: how many tokens a call has and how they are routed.
struct Workload {
  std::int64_t tokens = 1;
  RoutingKind routing = RoutingKind::uniform;
  std::uint64_t seed = 1;

  bool operator==(const Workload&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("tokens", self.tokens);
    visit("routing", self.routing);
    visit("seed", self.seed);
  }
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;
  /// Checks against the reference first, then times. Never throws, never hangs: a failure is an Outcome.
  [[nodiscard]] virtual Outcome evaluate(const Workload& workload, const Candidate& candidate) = 0;
  /// Times finalists that are known to be right in turn (a b c a b c …), so that a drift of the machine meets all
  /// alike. One outcome each.
  [[nodiscard]] virtual std::vector<Outcome> race(const Workload& workload, std::span<const Candidate> candidates) = 0;
};

}  // namespace moetune
