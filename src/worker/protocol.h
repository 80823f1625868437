// What parent and worker say to each other: one JSON object a line each way. docs/protocol.md is the description for
// other languages.
//
//   parent  {"id": 7, "op": "evaluate", "body": {…}}
//   worker  {"event": "phase", "phase": "check"}                         any number, before what they name begins
//   worker  {"id": 7, "ok": true, "spoiled": false, "result": {…}}       or
//           {"id": 7, "ok": false, "spoiled": false, "failure": {"what": "…", "hints": ["…"], "out_of_memory": false}}
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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

/// Changes when a worker or a parent of before would not understand. New fields and new events do not change it: what
/// is not known is ignored.
inline constexpr int kProtocolVersion = 1;

/// What can be asked. hello → Greeting; open: Job → {}; evaluate: EvaluateRequest with one candidate → Outcome;
/// race: EvaluateRequest → a list of Outcomes; ceilings → Ceilings; quit: no reply, the worker ends.
enum class Op { hello, open, evaluate, race, ceilings, quit };
template <>
struct EnumNames<Op> {
  static constexpr std::array<std::string_view, 6> names = {"hello", "open", "evaluate", "race", "ceilings", "quit"};
};

struct Request {
  std::int64_t id = 0;
  Op op = Op::hello;
  Json body = Json::object();

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("id", self.id);
    visit("op", self.op);
    visit("body", self.body);
  }
};

/// What a worker is about to do. A death or a missed deadline is attributed to the last one announced.
enum class Phase {
  open,       ///< makes or reads the weights
  reference,  ///< computes what is right
  load,       ///< hands the weights to a backend
  configure,  ///< Session::configure
  check,      ///< runs and compares
  time,       ///< times
  ceilings    ///< measures what the device can do at best
};
template <>
struct EnumNames<Phase> {
  static constexpr std::array<std::string_view, 7> names = {"open",  "reference", "load",    "configure",
                                                            "check", "time",      "ceilings"};
};

struct PhaseEvent {
  std::string event = "phase";
  Phase phase = Phase::open;
  std::int64_t candidate = 0;  ///< of the request's list, whose turn it is

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("event", self.event);
    visit("phase", self.phase);
    visit("candidate", self.candidate);
  }
};

/// An Error on the wire.
struct Failure {
  std::string what;
  std::vector<std::string> hints;
  bool out_of_memory = false;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("what", self.what);
    visit("hints", self.hints);
    visit("out_of_memory", self.out_of_memory);
  }
};

struct Reply {
  std::optional<std::int64_t> id;  ///< of the request; nothing where that had none
  bool ok = false;
  bool spoiled = false;            ///< the worker asks to be replaced, whatever it answered
  Json result;                     ///< where ok
  std::optional<Failure> failure;  ///< where not: the request could not be carried out at all

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("id", self.id);
    visit("ok", self.ok);
    visit("spoiled", self.spoiled);
    visit("result", self.result);
    visit("failure", self.failure);
  }
};

/// Whether a process in which a candidate came to this is not to be trusted with the next one: its device, its heap or
/// what the backend keeps may be in a state that others would be blamed for. A refusal and a failed preparation leave
/// nothing behind.
[[nodiscard]] constexpr bool spoils(OutcomeStatus status) {
  switch (status) {
    case OutcomeStatus::launch_failed:
    case OutcomeStatus::crashed:
    case OutcomeStatus::wrong_result:
    case OutcomeStatus::nan:
    case OutcomeStatus::out_of_memory:
      return true;
    case OutcomeStatus::ok:
    case OutcomeStatus::unsupported:
    case OutcomeStatus::compile_failed:
    case OutcomeStatus::timed_out:
    case OutcomeStatus::throttled:
    case OutcomeStatus::skipped:
      return false;
  }
  return true;
}

/// What the worker is about: the layer, where its weights come from, where it runs. Sent once, before the rest.
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

/// evaluate: one candidate, checked and timed. race: several, checked and timed in turn.
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

/// Answer to hello.
struct Greeting {
  int protocol = 0;
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
