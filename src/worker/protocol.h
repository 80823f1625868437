// What parent and worker say to each other: one JSON object a line each way. docs/protocol.md is the description for
// other languages.
//
//   parent  {"id": 7, "op": "evaluate", "evaluate": {…}}
//   worker  {"phase": "check"}                                    any number, before what it names begins
//   worker  {"id": 7, "ok": true, "result": {…}}                  or {"id": 7, "ok": false, "error": "…", "hints":
//   ["…"]}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arch/target.h"
#include "backend/evaluator.h"
#include "base/error.h"
#include "base/json.h"
#include "measure/stop_rule.h"
#include "model/geometry.h"
#include "model/problem.h"

namespace moetune {

inline constexpr int kProtocolVersion = 1;

/// What the worker is about: the layer, where its weights come from, where it runs. Sent once, first.
struct Job {
  Problem problem;
  Target target;
  std::string folder;  ///< weights are read from this checkpoint; empty: random ones
  Geometry geometry;   ///< of the checkpoint; only used with a folder
  std::int64_t layer = -1;
  std::int64_t tp_rank = 0, ep_rank = 0;
  std::uint64_t seed = 1;

  [[nodiscard]] Cut cut() const { return {problem.tp, problem.ep, tp_rank, ep_rank}; }

  bool operator==(const Job&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("problem", self.problem);
    visit("target", self.target);
    visit("folder", self.folder);
    visit("geometry", self.geometry);
    visit("layer", self.layer);
    visit("tp_rank", self.tp_rank);
    visit("ep_rank", self.ep_rank);
    visit("seed", self.seed);
  }
};

/// "evaluate": one candidate, checked and timed. "race": candidates known to be right, timed in turn. "check": false
/// skips the reference.
struct EvaluateRequest {
  Workload workload;
  std::vector<Candidate> candidates;
  StopRule stop;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("workload", self.workload);
    visit("candidates", self.candidates);
    visit("stop", self.stop);
  }
};

/// Answer to "hello".
struct Greeting {
  int protocol = kProtocolVersion;
  std::string version;
  std::vector<std::string> backends;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("protocol", self.protocol);
    visit("version", self.version);
    visit("backends", self.backends);
  }
};

}  // namespace moetune
