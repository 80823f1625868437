// A whole search in which every fourth candidate crashes, hangs or answers wrongly.
#include <map>

#include "fault_test.h"
#include "tune/tuner.h"

namespace moetune {
namespace {

constexpr std::int64_t kCandidates = 200;
constexpr std::int64_t kWinner = 118;

struct Named {
  Fault fault;
  OutcomeStatus status;
};

/// In turn; those that take their whole deadline are few.
constexpr std::array<Named, 17> kFaults = {{{Fault::segfaults, OutcomeStatus::crashed},
                                            {Fault::answers_wrongly, OutcomeStatus::wrong_result},
                                            {Fault::aborts, OutcomeStatus::crashed},
                                            {Fault::answers_nan, OutcomeStatus::nan},
                                            {Fault::ignores_sigterm, OutcomeStatus::timed_out},
                                            {Fault::exits, OutcomeStatus::crashed},
                                            {Fault::one_value_wrong, OutcomeStatus::wrong_result},
                                            {Fault::throws, OutcomeStatus::crashed},
                                            {Fault::fails, OutcomeStatus::launch_failed},
                                            {Fault::right_once, OutcomeStatus::wrong_result},
                                            {Fault::cannot_configure, OutcomeStatus::compile_failed},
                                            {Fault::writes_nothing, OutcomeStatus::nan},
                                            {Fault::spins, OutcomeStatus::timed_out},
                                            {Fault::says_out_of_memory, OutcomeStatus::out_of_memory},
                                            {Fault::leaves_a_process_and_dies, OutcomeStatus::crashed},
                                            {Fault::endless_line, OutcomeStatus::crashed},
                                            {Fault::writes_beside, OutcomeStatus::wrong_result}}};

std::optional<Named> fault_of(std::int64_t slot) {
  if (slot % 4 != 3) return std::nullopt;
  return kFaults[static_cast<std::size_t>(slot / 4) % kFaults.size()];
}

/// test:faulty with a space of 200, a fourth of which is faulty and claims to be the fastest.
class Slots : public Backend {
 public:
  std::string id() const override { return "test:faulty"; }
  std::string summary() const override { return "200 candidates"; }
  std::string revision() const override { return "1"; }
  Reasons why_not(const Problem&, const Target&) const override { return {}; }
  Space space(const Problem&, const Target&, std::int64_t) const override {
    std::set<std::int64_t> faults, times;
    std::set<std::pair<std::int64_t, std::int64_t>> both;
    for (std::int64_t slot = 0; slot < kCandidates; ++slot) {
      const Config config = config_of(slot);
      faults.insert(config.get("fault"));
      times.insert(config.get("us"));
      both.emplace(config.get("fault"), config.get("us"));
    }
    Space space;
    space.axes = {{"fault", {faults.begin(), faults.end()}, "what goes wrong"},
                  {"us", {times.begin(), times.end()}, "what a call takes, in microseconds"}};
    space.admits = [both](const Config& config) { return both.count({config.get("fault"), config.get("us")}) == 1; };
    return space;
  }
  Config default_config(const Problem&, const Target&, std::int64_t) const override { return config_of(0); }
  Result<std::unique_ptr<Session>> open(const Problem&, const Layer&, const Target&) const override {
    return fail("runs in workers only");
  }

  /// Right ones take 1 to 2 ms, the winner half of the fastest other; faulty ones say that they take next to nothing.
  static Config config_of(std::int64_t slot) {
    if (const auto named = fault_of(slot)) return faulty_config(named->fault, 1 + slot / 4);
    return faulty_config(Fault::none, slot == kWinner ? 500 : 1000 + slot * 5);
  }
};

class RunTest : public FaultTest {};

TEST_F(RunTest, EndsNamesEachAndFindsTheRightWinner) {
  options_.evaluate_s = 1.5;
  WorkerEvaluator evaluator(job_, options_);
  const Slots slots;
  TuneRequest request;
  request.identity.problem = job_.problem;
  request.backends = {&slots};
  request.workloads = {kWorkload};
  request.strategy = StrategyKind::exhaustive;
  TuneHooks hooks;
  hooks.clock = now_s;
  const auto report = tune(request, evaluator, nullptr, hooks);
  ASSERT_TRUE(report);
  const TuneRow& row = report->rows.front();
  EXPECT_TRUE(row.complete);
  EXPECT_EQ(row.evaluated.size(), 200U);
  EXPECT_EQ(row.failed(), 50);
  std::map<Fault, OutcomeStatus> expected;
  for (const auto& named : kFaults) expected[named.fault] = named.status;
  for (const auto& [candidate, outcome, reused] : row.evaluated) {
    const auto fault = static_cast<Fault>(candidate.config.get("fault"));
    const auto status = fault == Fault::none ? OutcomeStatus::ok : expected.at(fault);
    EXPECT_EQ(to_string(outcome.status), to_string(status)) << to_string(fault) << ": " << outcome.diagnosis;
    EXPECT_EQ(outcome.diagnosis.empty(), fault == Fault::none) << to_string(fault);
  }
  ASSERT_TRUE(row.winner);
  EXPECT_EQ(row.winner->config, Slots::config_of(kWinner));
  EXPECT_EQ(row.verdict, Speed::faster);
  EXPECT_EQ(row.winner_time.median, 500);
  EXPECT_EQ(row.default_time.median, 1000);
  EXPECT_FALSE(evaluator.given_up());
}

}  // namespace
}  // namespace moetune
