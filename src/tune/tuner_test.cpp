#include "tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "tune/sqlite.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

/// A backend of one axis "x" = 0 … size-1 that exists for its space only.
class LineBackend : public Backend {
 public:
  LineBackend(std::string id, std::int64_t size, std::int64_t first) : id_(std::move(id)), size_(size), first_(first) {}

  [[nodiscard]] std::string id() const override { return id_; }
  [[nodiscard]] std::string summary() const override { return ""; }
  [[nodiscard]] std::string revision() const override { return revision_; }
  [[nodiscard]] Reasons why_not(const Problem&, const Target&) const override { return reasons_; }
  [[nodiscard]] bool prefers(const Problem&, const Target&, std::int64_t tokens) const override {
    return tokens >= preferred_from_;
  }
  [[nodiscard]] Space space(const Problem&, const Target&, std::int64_t) const override {
    Axis axis{"x", {}, ""};
    for (std::int64_t x = 0; x < size_; ++x) axis.values.push_back(x);
    return {{axis}, {}};
  }
  [[nodiscard]] Config default_config(const Problem&, const Target&, std::int64_t) const override {
    return {{{"x", first_}}};
  }
  [[nodiscard]] Result<std::unique_ptr<Session>> open(const Problem&, const Layer&, const Target&) const override {
    return fail("exists for its space only");
  }

  Reasons reasons_;
  std::int64_t preferred_from_ = 0;
  std::string revision_ = "1";

 private:
  std::string id_;
  std::int64_t size_, first_;
};

Candidate at(std::int64_t x, const std::string& backend = "t:a") { return {backend, {{{"x", x}}}}; }
std::int64_t x_of(const Candidate& candidate) { return candidate.config.get("x"); }

Outcome timed(double us, double spread = 0) {
  Outcome outcome;
  for (const double step : {-1.0, -0.5, 0.0, 0.5, 1.0}) outcome.samples_us.push_back(us + step * spread);
  return outcome;
}

Outcome failed(OutcomeStatus status) {
  Outcome outcome;
  outcome.status = status;
  outcome.diagnosis = "it did";
  outcome.log = std::string(10'000, 'a') + "the end";
  return outcome;
}

/// Answers from functions, counts, and lets time pass.
class TableEvaluator : public Evaluator {
 public:
  using Answer = std::function<Outcome(const Workload&, const Candidate&)>;
  explicit TableEvaluator(Answer answer) : evaluate_(answer), race_(answer) {}
  TableEvaluator(Answer evaluate, Answer race) : evaluate_(std::move(evaluate)), race_(std::move(race)) {}

  [[nodiscard]] Outcome evaluate(const Workload& workload, const Candidate& candidate) override {
    evaluated.emplace_back(workload.tokens, candidate);
    now_s += seconds_each;
    if (on_evaluate) on_evaluate();
    return evaluate_(workload, candidate);
  }
  [[nodiscard]] std::vector<Outcome> race(const Workload& workload, std::span<const Candidate> candidates) override {
    races.emplace_back(candidates.begin(), candidates.end());
    now_s += seconds_each * static_cast<double>(candidates.size());
    std::vector<Outcome> outcomes;
    for (const auto& candidate : candidates) outcomes.push_back(race_(workload, candidate));
    return outcomes;
  }

  std::vector<std::pair<std::int64_t, Candidate>> evaluated;
  std::vector<std::vector<Candidate>> races;
  std::function<void()> on_evaluate;
  double now_s = 100;
  double seconds_each = 1;

 private:
  Answer evaluate_, race_;
};

class TunerTest : public testing::Test {
 protected:
  TunerTest() {
    std::string pattern = (fs::temp_directory_path() / "moetune_tuner_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    request_.identity.problem.model = "m";
    request_.backends = {&a_};
    request_.workloads = {{1, RoutingKind::uniform, 1}};
    request_.strategy = StrategyKind::exhaustive;
  }
  ~TunerTest() override { fs::remove_all(folder_); }

  [[nodiscard]] Store store() const { return *Store::open(folder_ / "results.sqlite"); }
  TuneReport run(TableEvaluator& evaluator, Store* store = nullptr) {
    const TuneHooks hooks{[&] { return evaluator.now_s; }, progress_, &stop_};
    auto report = tune(request_, evaluator, store, hooks);
    EXPECT_TRUE(report) << report.error().what;
    return *report;
  }

  fs::path folder_;
  LineBackend a_{"t:a", 10, 7}, b_{"t:b", 10, 4};
  TuneRequest request_;
  std::function<void(const TuneProgress&)> progress_;
  std::atomic<bool> stop_ = false;
};

/// 100 us at x = 2, one us more for each step.
Outcome slope(const Workload&, const Candidate& c) { return timed(100 + std::abs(static_cast<double>(x_of(c)) - 2)); }
/// The same in steps of 10.
Outcome steep(const Workload&, const Candidate& c) {
  return timed(100 + 10 * std::abs(static_cast<double>(x_of(c)) - 2));
}

TEST_F(TunerTest, FasterPastTheNoise) {
  TableEvaluator evaluator(steep);
  const TuneReport report = run(evaluator);
  ASSERT_EQ(report.rows.size(), 1U);
  const TuneRow& row = report.rows[0];
  EXPECT_EQ(row.winner, at(2));
  EXPECT_EQ(row.fallback, at(7));
  EXPECT_EQ(row.verdict, Speed::faster);
  EXPECT_DOUBLE_EQ(row.winner_time.median, 100);
  EXPECT_DOUBLE_EQ(row.default_time.median, 150);
  EXPECT_DOUBLE_EQ(row.gain(), 1.5);
  EXPECT_TRUE(row.raced && row.complete && row.exhausted);
  EXPECT_EQ(evaluator.evaluated.front().second, at(7));  // the default first
  // The default and the best three.
  EXPECT_THAT(evaluator.races, testing::ElementsAre(testing::ElementsAre(at(7), at(2), at(1), at(3))));
  EXPECT_EQ(report.evaluated(), 10);
  EXPECT_EQ(report.failed(), 0);
  EXPECT_EQ(report.reused(), 0);
  EXPECT_DOUBLE_EQ(report.elapsed_s, 10 + 4);
}

TEST_F(TunerTest, ATieKeepsTheDefault) {
  LineBackend near("t:a", 10, 4);
  request_.backends = {&near};
  TableEvaluator evaluator(slope);  // 102 against 100
  const TuneRow row = run(evaluator).rows[0];
  EXPECT_EQ(row.winner, at(4));
  EXPECT_EQ(row.verdict, Speed::tie);
  EXPECT_EQ(row.gain(), 1.0);
  EXPECT_DOUBLE_EQ(row.winner_time.median, 102);
}

TEST_F(TunerTest, NoiseIsNoGain) {
  // 150 against 100 us, and samples that say nothing of the kind: ± 100 us.
  TableEvaluator evaluator([](const Workload&, const Candidate& c) { return timed(x_of(c) == 2 ? 100 : 150, 100); });
  EXPECT_EQ(run(evaluator).rows[0].verdict, Speed::tie);
}

TEST_F(TunerTest, TheRaceDecidesNotTheLuckySample) {
  // In the search x = 9 looks twice as fast; raced it is slower than the default, and x = 2 is the fastest.
  TableEvaluator evaluator([](const Workload& w, const Candidate& c) { return x_of(c) == 9 ? timed(50) : steep(w, c); },
                           steep);
  const TuneRow row = run(evaluator).rows[0];
  EXPECT_EQ(row.winner, at(2));
  EXPECT_DOUBLE_EQ(row.winner_time.median, 100);
}

TEST_F(TunerTest, ThosethatFailInTheRaceAreOut) {
  TableEvaluator one_fails(steep, [](const Workload& w, const Candidate& c) {
    return x_of(c) == 2 ? failed(OutcomeStatus::crashed) : steep(w, c);
  });
  TuneRow row = run(one_fails).rows[0];
  EXPECT_EQ(row.winner, at(1));
  EXPECT_TRUE(row.raced);

  TableEvaluator default_fails(steep, [](const Workload& w, const Candidate& c) {
    return x_of(c) == 7 ? failed(OutcomeStatus::timed_out) : steep(w, c);
  });
  row = run(default_fails).rows[0];
  EXPECT_EQ(row.winner, at(2));
  EXPECT_EQ(row.verdict, Speed::faster);
  EXPECT_EQ(row.default_time.samples, 0);
}

/// One candidate takes the whole race down, as a crash does.
class FragileEvaluator : public TableEvaluator {
 public:
  using TableEvaluator::TableEvaluator;
  [[nodiscard]] std::vector<Outcome> race(const Workload& workload, std::span<const Candidate> candidates) override {
    auto outcomes = TableEvaluator::race(workload, candidates);
    if (std::any_of(candidates.begin(), candidates.end(), [](const auto& c) { return x_of(c) == 2; }))
      for (auto& outcome : outcomes) outcome = failed(OutcomeStatus::crashed);
    return outcomes;
  }
};

TEST_F(TunerTest, ARaceThatIsTakenDownIsRunInPairs) {
  FragileEvaluator evaluator(steep);
  const TuneRow row = run(evaluator).rows[0];
  EXPECT_EQ(row.winner, at(1));
  EXPECT_TRUE(row.raced);
  EXPECT_THAT(evaluator.races, testing::ElementsAre(testing::SizeIs(4), testing::ElementsAre(at(7), at(2)),
                                                    testing::ElementsAre(at(7), at(1))));
}

TEST_F(TunerTest, WhereNoRaceSaysAnythingTheSearchDoes) {
  TableEvaluator evaluator(steep, [](const auto&, const auto&) { return failed(OutcomeStatus::crashed); });
  const TuneRow row = run(evaluator).rows[0];
  EXPECT_EQ(row.winner, at(2));
  EXPECT_FALSE(row.raced);
}

TEST_F(TunerTest, FailuresAreRows) {
  TableEvaluator evaluator([](const Workload& w, const Candidate& c) {
    return x_of(c) < 4 ? failed(OutcomeStatus::wrong_result) : steep(w, c);
  });
  Store kept = store();
  const TuneReport report = run(evaluator, &kept);
  EXPECT_EQ(report.rows[0].winner, at(4));
  EXPECT_EQ(report.failed(), 4);
  EXPECT_EQ(report.evaluated(), 10);
  for (const auto& evaluated : report.rows[0].evaluated)
    if (evaluated.outcome.status != OutcomeStatus::ok) {
      EXPECT_EQ(evaluated.outcome.diagnosis, "it did");
      EXPECT_EQ(evaluated.outcome.log.size(), 4096U);
      EXPECT_TRUE(evaluated.outcome.log.ends_with("the end"));
    }
  const auto stored = *kept.list({.status = OutcomeStatus::wrong_result});
  ASSERT_EQ(stored.size(), 4U);
  EXPECT_EQ(stored[0].outcome.log.size(), 10'007U);
}

TEST_F(TunerTest, AllFail) {
  TableEvaluator evaluator([](const auto&, const auto&) { return failed(OutcomeStatus::crashed); });
  const TuneReport report = run(evaluator);
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_FALSE(report.rows[0].winner);
  EXPECT_EQ(report.rows[0].fallback, at(7));
  EXPECT_EQ(report.failed(), 10);
  EXPECT_TRUE(evaluator.races.empty());
}

TEST_F(TunerTest, ADefaultThatFailsIsBeatenByAnything) {
  TableEvaluator evaluator([](const Workload& w, const Candidate& c) {
    return x_of(c) == 7 ? failed(OutcomeStatus::crashed) : steep(w, c);
  });
  const TuneRow row = run(evaluator).rows[0];
  EXPECT_EQ(row.winner, at(2));
  EXPECT_EQ(row.verdict, Speed::faster);
  EXPECT_EQ(row.gain(), 1.0);  // nothing to compare with
}

TEST_F(TunerTest, NoBackendCanRunIt) {
  a_.reasons_ = {{ReasonCode::shape, "96", "a multiple of 64", "", ""}};
  TableEvaluator evaluator(slope);
  const TuneReport report = run(evaluator);
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_FALSE(report.rows[0].winner || report.rows[0].fallback);
  EXPECT_TRUE(evaluator.evaluated.empty());
}

TEST_F(TunerTest, TheDefaultIsOfTheFirstBackendThatPrefersTheTokens) {
  a_.preferred_from_ = 16;
  request_.backends = {&a_, &b_};
  request_.workloads = {{1, RoutingKind::uniform, 1}, {16, RoutingKind::uniform, 1}};
  request_.budget_evaluations = 2;
  TableEvaluator evaluator(steep);
  const TuneReport report = run(evaluator);
  EXPECT_EQ(report.rows[0].fallback, at(4, "t:b"));
  EXPECT_EQ(report.rows[1].fallback, at(7));
  // Then every other backend's default.
  EXPECT_EQ(report.rows[0].evaluated[1].candidate, at(7));
  EXPECT_EQ(report.rows[1].evaluated[1].candidate, at(4, "t:b"));
  a_.preferred_from_ = b_.preferred_from_ = 1000;  // none does: the first
  EXPECT_EQ(run(evaluator).rows[0].fallback, at(7));
}

TEST_F(TunerTest, BudgetOfEvaluations) {
  for (const auto& [budget, expected] : std::map<std::int64_t, std::size_t>{{0, 1}, {1, 1}, {4, 4}, {1000, 10}}) {
    request_.budget_evaluations = budget;
    TableEvaluator evaluator(steep);
    const TuneRow row = run(evaluator).rows[0];
    EXPECT_EQ(row.evaluated.size(), expected);
    EXPECT_TRUE(row.winner);
    EXPECT_EQ(row.exhausted, budget == 1000);
    EXPECT_EQ(evaluator.races.empty(), expected == 1);
  }
}

TEST_F(TunerTest, BudgetOfTimeIsSharedAndLeavesRoomForTheRace) {
  LineBackend large("t:a", 1000, 7);
  request_.backends = {&large};
  request_.workloads = {{1, RoutingKind::uniform, 1}, {4, RoutingKind::uniform, 1}};
  request_.budget_s = 60;
  TableEvaluator evaluator(slope);
  const TuneReport report = run(evaluator);
  // 3 s are kept for the pass over the rows; of 28.5 s each, 4 s for the race.
  for (const auto& row : report.rows) EXPECT_NEAR(static_cast<double>(row.evaluated.size()), 24.5, 1.5);
  EXPECT_LE(report.elapsed_s, 60);
  EXPECT_GE(report.elapsed_s, 55);
  request_.budget_s = 0;
  TableEvaluator again(slope);
  for (const auto& row : run(again).rows) EXPECT_EQ(row.evaluated.size(), 1U);  // the defaults in any case
}

TEST_F(TunerTest, WithoutABudgetALocalSearchEnds) {
  LineBackend large("t:a", 100'000, 70'000);
  request_.backends = {&large};
  request_.strategy = StrategyKind::local;
  TableEvaluator evaluator(
      [](const Workload&, const Candidate& c) { return timed(100 + std::abs(static_cast<double>(x_of(c)) - 5)); });
  const TuneRow row = run(evaluator).rows[0];
  EXPECT_LT(row.evaluated.size(), 2000U);
  EXPECT_GT(row.evaluated.size(), 60U);
  EXPECT_FALSE(row.exhausted);
}

TEST_F(TunerTest, NothingIsMeasuredTwice) {
  Store kept = store();
  TableEvaluator first(steep);
  const TuneReport before = run(first, &kept);
  TableEvaluator second(steep);
  const TuneReport after = run(second, &kept);
  EXPECT_TRUE(second.evaluated.empty());
  EXPECT_TRUE(second.races.empty());
  EXPECT_EQ(after.reused(), 10);
  EXPECT_EQ(after.rows[0].winner, before.rows[0].winner);
  EXPECT_EQ(after.rows[0].gain(), before.rows[0].gain());
  // A changed backend is measured anew.
  a_.revision_ = "2";
  TableEvaluator third(steep);
  EXPECT_EQ(run(third, &kept).reused(), 0);
  EXPECT_EQ(third.evaluated.size(), 10U);
}

TEST_F(TunerTest, StoredFailuresAreRetriedOnlyWhenAsked) {
  Store kept = store();
  const auto half = [](OutcomeStatus status) {
    return [status](const Workload& w, const Candidate& c) { return x_of(c) < 5 ? failed(status) : steep(w, c); };
  };
  TableEvaluator first(half(OutcomeStatus::out_of_memory));
  (void)run(first, &kept);
  TableEvaluator second(steep);
  (void)run(second, &kept);
  EXPECT_TRUE(second.evaluated.empty());
  request_.retry_failed = true;
  TableEvaluator third(steep);
  EXPECT_EQ(run(third, &kept).rows[0].winner, at(2));
  EXPECT_EQ(third.evaluated.size(), 5U);
}

TEST_F(TunerTest, AStopKeepsWhatThereIsAndResumesThere) {
  request_.workloads = {{1, RoutingKind::uniform, 1}, {4, RoutingKind::uniform, 1}};
  for (const auto strategy : {StrategyKind::exhaustive, StrategyKind::random, StrategyKind::local}) {
    request_.strategy = strategy;
    request_.seed = 5;
    fs::remove_all(folder_);
    Store kept = store();
    TableEvaluator first(steep);
    first.on_evaluate = [&] { stop_ = first.evaluated.size() >= 6; };
    const TuneReport stopped = run(first, &kept);
    ASSERT_EQ(stopped.rows.size(), 1U);  // the second was not reached
    EXPECT_FALSE(stopped.rows[0].complete);
    EXPECT_EQ(stopped.rows[0].evaluated.size(), 6U);
    EXPECT_TRUE(stopped.rows[0].winner);
    EXPECT_FALSE(stopped.rows[0].raced);
    EXPECT_TRUE(first.races.empty());

    stop_ = false;
    TableEvaluator rest(steep);
    const TuneReport resumed = run(rest, &kept);
    EXPECT_EQ(rest.evaluated.size(), 14U) << to_string(strategy);
    EXPECT_EQ(resumed.evaluated(), 20);
    EXPECT_EQ(resumed.reused(), 6);
    EXPECT_TRUE(resumed.rows[0].complete);
    EXPECT_EQ(resumed.rows[0].winner, at(2));
  }
}

TEST_F(TunerTest, InterruptedCandidatesAreNotRows) {
  Store kept = store();
  TableEvaluator evaluator([&](const Workload& w, const Candidate& c) {
    if (x_of(c) != 3) return steep(w, c);
    stop_ = true;
    return failed(OutcomeStatus::skipped);
  });
  const TuneReport report = run(evaluator, &kept);
  EXPECT_EQ(report.evaluated(), 4);  // 7, 0, 1, 2
  EXPECT_EQ(report.failed(), 0);
  EXPECT_EQ(kept.list({})->size(), 4U);
}

TEST_F(TunerTest, RowsSeedEachOther) {
  // The optimum is far from the default and drifts with the tokens; eight evaluations a row do not reach it alone.
  LineBackend wide("t:a", 400, 350);
  request_.backends = {&wide};
  request_.strategy = StrategyKind::local;
  request_.budget_evaluations = 12;
  request_.workloads = {{64, RoutingKind::uniform, 1}, {1, RoutingKind::uniform, 1}, {8, RoutingKind::uniform, 1}};
  TableEvaluator evaluator(
      [](const Workload&, const Candidate& c) { return timed(100 + std::abs(static_cast<double>(x_of(c)) - 30)); });
  const TuneReport report = run(evaluator);
  ASSERT_EQ(report.rows.size(), 3U);
  EXPECT_EQ(report.rows[0].workload.tokens, 64);    // in the order of the request
  EXPECT_EQ(evaluator.evaluated.front().first, 1);  // searched from the fewest tokens on
  // After its default a row looks at the winner of the nearest row before it.
  EXPECT_EQ(report.rows[2].evaluated[1].candidate, *report.rows[1].winner);
  EXPECT_EQ(report.rows[0].evaluated[1].candidate, *report.rows[2].winner);
  EXPECT_LE(report.rows[0].winner_time.median, report.rows[1].winner_time.median);
}

TEST_F(TunerTest, ARowIsOfferedTheWinnerOfTheRowAfterIt) {
  // More is better in both rows, but only the default of the larger one is at the end of the line.
  class Shifted : public LineBackend {
   public:
    using LineBackend::LineBackend;
    [[nodiscard]] Config default_config(const Problem&, const Target&, std::int64_t tokens) const override {
      return {{{"x", tokens == 1 ? 0 : 99}}};
    }
  };
  Shifted shifted("t:a", 100, 0);
  request_.backends = {&shifted};
  request_.workloads = {{1, RoutingKind::uniform, 1}, {4, RoutingKind::uniform, 1}};
  request_.budget_s = 20;  // exhaustive search from 0 on gets to about 15
  TableEvaluator evaluator(
      [](const Workload&, const Candidate& c) { return timed(10'000 - 50 * static_cast<double>(x_of(c))); });
  evaluator.seconds_each = 0.5;
  const TuneReport report = run(evaluator);
  EXPECT_EQ(report.rows[0].winner, at(99));
  EXPECT_EQ(report.rows[0].evaluated.back().candidate, at(99));
  EXPECT_EQ(report.rows[0].verdict, Speed::faster);
  EXPECT_LT(report.rows[0].evaluated.size(), 20U);
}

TEST_F(TunerTest, WinnersAreStored) {
  Store kept = store();
  TableEvaluator evaluator(steep);
  (void)run(evaluator, &kept);
  const auto winners = *kept.list_winners({});
  ASSERT_EQ(winners.size(), 1U);
  EXPECT_EQ(winners[0].winner, at(2));
  EXPECT_EQ(winners[0].fallback, at(7));
  EXPECT_EQ(winners[0].verdict, Speed::faster);
  EXPECT_EQ(winners[0].us_median, 100);
  EXPECT_EQ(winners[0].default_us, 150);
  EXPECT_EQ(winners[0].model, "m");
}

TEST_F(TunerTest, ProgressTellsTheBest) {
  request_.workloads = {{1, RoutingKind::uniform, 1}, {4, RoutingKind::uniform, 1}};
  std::vector<double> bests;
  std::vector<std::size_t> rows;
  progress_ = [&](const TuneProgress& p) {
    EXPECT_EQ(p.rows, 2U);
    EXPECT_NE(p.latest, nullptr);
    EXPECT_EQ(p.evaluated, static_cast<std::int64_t>(bests.size() + 1));
    EXPECT_GT(p.elapsed_s, 0);
    bests.push_back(p.best->second);
    rows.push_back(p.row);
  };
  TableEvaluator evaluator(steep);
  (void)run(evaluator);
  ASSERT_EQ(bests.size(), 20U);
  EXPECT_EQ(bests[0], 150);
  EXPECT_EQ(bests[9], 100);
  EXPECT_EQ(rows[9], 0U);
  EXPECT_EQ(rows[10], 1U);
}

TEST_F(TunerTest, AStoreThatFailsIsAnError) {
  const std::string path = folder_ / "results.sqlite";
  auto damaged = Store::open(path);
  ASSERT_TRUE(damaged);
  ASSERT_TRUE(Database::open(path, 1000)->execute("DROP TABLE results"));
  TableEvaluator evaluator(steep);
  const TuneHooks hooks{[&] { return evaluator.now_s; }, {}, nullptr};
  const auto report = tune(request_, evaluator, &*damaged, hooks);
  ASSERT_FALSE(report);
  EXPECT_FALSE(report.error().hints.empty());
}

}  // namespace
}  // namespace moetune
