#include "tune/recording.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "measure/stats.h"
#include "tune/test_landscape.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

/// best of all / best found within that part of an exhaustive search's evaluations, for seeds 1 … `searches`.
std::vector<double> found(const RecordedRow& row, StrategyKind kind, double part, std::uint64_t searches) {
  const auto evaluations = static_cast<std::size_t>(part * static_cast<double>(candidates(row)));
  std::vector<double> ratios;
  for (std::uint64_t seed = 1; seed <= searches; ++seed)
    ratios.push_back(best_us(row) / replay(row, kind, seed, evaluations).back());
  return ratios;
}

/// The promise: 97 % of the exhaustive best in 15 % of its evaluations.
constexpr double kFound = 0.97, kPart = 0.15;

TEST(SearchQuality, LandscapesWithInteractionsAndFailures) {
  std::vector<double> local, random;
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    for (const std::int64_t tokens : {1, 16})
      for (const auto& threads : {std::vector<std::int64_t>{1, 2}, std::vector<std::int64_t>{1, 2, 3, 4, 6, 8}}) {
        const RecordedRow row = test::Landscape{seed, tokens, threads}.row();
        const auto ratios = found(row, StrategyKind::local, kPart, 20);
        EXPECT_GE(median(ratios), kFound) << "landscape " << seed << ", " << tokens << " tokens";
        local.insert(local.end(), ratios.begin(), ratios.end());
        const auto blind = found(row, StrategyKind::random, kPart, 20);
        random.insert(random.end(), blind.begin(), blind.end());
      }
  EXPECT_GE(quantile(local, 0.1), kFound);
  EXPECT_LT(median(random), kFound);  // or the landscapes would be too easy to say anything
}

TEST(Replay, ExhaustiveEndsAtTheBest) {
  const RecordedRow row = test::Landscape{}.row();
  const auto best = replay(row, StrategyKind::exhaustive, 1, 1'000'000);
  EXPECT_EQ(best.size(), candidates(row));
  EXPECT_EQ(best.back(), best_us(row));
  EXPECT_TRUE(std::is_sorted(best.rbegin(), best.rend()));
}

RecordedRow small_row() {
  RecordedPart part{"t:a", {{"x", {1, 2}}, {"y", {0, 8}}}, {2, 0}, {}};
  part.outcomes = {
      {{1, 0}, OutcomeStatus::ok, 10, 1}, {{2, 0}, OutcomeStatus::nan, 0, 0}, {{2, 8}, OutcomeStatus::ok, 7, 1}};
  return {{4, RoutingKind::uniform, 1}, true, {part}};
}

TEST(Replay, WhatIsNotRecordedIsNoCandidate) {
  const RecordedRow row = small_row();
  EXPECT_EQ(candidates(row), 3U);
  EXPECT_EQ(best_us(row), 7);
  const auto best = replay(row, StrategyKind::exhaustive, 1, 100);
  // The default fails; then 1,0 and 2,8. 1,8 was not admitted.
  EXPECT_EQ(best, (std::vector<double>{std::numeric_limits<double>::infinity(), 10, 7}));
}

class RecordingFileTest : public testing::Test {
 protected:
  RecordingFileTest() {
    std::string pattern = (fs::temp_directory_path() / "moetune_recording_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~RecordingFileTest() override { fs::remove_all(folder_); }

  Result<Recording> through_file(const Recording& recording) const {
    EXPECT_TRUE(write_file(folder_ / "r.json", dump_json(to_json(recording))));
    return read_recording(folder_ / "r.json");
  }

  fs::path folder_;
};

TEST_F(RecordingFileTest, RoundTrip) {
  Recording recording;
  recording.identity.problem.model = "m";
  recording.identity.weights = "random 1";
  recording.rows = {small_row(), test::Landscape{}.row()};
  const auto read = through_file(recording);
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->rows, recording.rows);
  EXPECT_EQ(read->identity.problem, recording.identity.problem);
  EXPECT_EQ(read->identity.weights, "random 1");
}

TEST_F(RecordingFileTest, SaysWhatIsWrong) {
  const auto refused = [&](const std::function<void(Recording&)>& damage, const std::string& why) {
    Recording recording;
    recording.rows = {small_row()};
    damage(recording);
    const auto read = through_file(recording);
    ASSERT_FALSE(read) << why;
    EXPECT_NE(read.error().what.find(why), std::string::npos) << read.error().what;
  };
  refused([](auto& r) { r.version = 2; }, "recording of version 2, this one knows 1");
  refused([](auto& r) { r.rows.clear(); }, "no rows");
  refused([](auto& r) { r.rows[0].parts.clear(); }, "row of 4 tokens: no candidate ran");
  const auto part = [](auto change) { return [change](Recording& r) { change(r.rows[0].parts[0]); }; };
  refused(part([](auto& p) { p.outcomes[0].config = {1}; }), "t:a [1]: 1 values for 2 axes");
  refused(part([](auto& p) { p.outcomes[0].config = {1, 3}; }), "3 is no value of axis 'y'");
  refused(part([](auto& p) { p.outcomes[2].config = {1, 0}; }), "t:a [1, 0]: recorded twice");
  refused(part([](auto& p) { p.outcomes[0].us_median = 0; }), "ok without a positive time");
  refused(part([](auto& p) { p.outcomes[0].us_median = std::nan(""); }), "expected a number, found null");
  refused(part([](auto& p) { p.first = {1, 8}; }), "default [1, 8] is not recorded");
  EXPECT_FALSE(read_recording(folder_ / "absent.json"));
  ASSERT_TRUE(write_file(folder_ / "r.json", "{}"));
  EXPECT_NE(read_recording(folder_ / "r.json").error().what.find("version 0"), std::string::npos);
}

class TwoByTwo : public Backend {
 public:
  [[nodiscard]] std::string id() const override { return "t:a"; }
  [[nodiscard]] std::string summary() const override { return ""; }
  [[nodiscard]] std::string revision() const override { return "1"; }
  [[nodiscard]] Reasons why_not(const Problem&, const Target&) const override { return {}; }
  [[nodiscard]] Space space(const Problem&, const Target&, std::int64_t) const override {
    return {{{"x", {1, 2}, ""}, {"y", {0, 8}, ""}}, [](const Config& c) { return c.get("x") * c.get("y") != 8; }};
  }
  [[nodiscard]] Config default_config(const Problem&, const Target&, std::int64_t) const override {
    return {{{"x", 2}, {"y", 0}}};
  }
  [[nodiscard]] Result<std::unique_ptr<Session>> open(const Problem&, const Layer&, const Target&) const override {
    return fail("exists for its space only");
  }
};

class TableEvaluator : public Evaluator {
 public:
  [[nodiscard]] Outcome evaluate(const Workload&, const Candidate& candidate) override {
    Outcome outcome;
    if (candidate.config.get("x") == 1)
      outcome.samples_us = {9, 10, 11};
    else if (candidate.config.get("y") == 8)
      outcome.samples_us = {7, 7, 7};
    else
      outcome.status = OutcomeStatus::nan;
    return outcome;
  }
  [[nodiscard]] std::vector<Outcome> race(const Workload& workload, std::span<const Candidate> candidates) override {
    std::vector<Outcome> outcomes;
    for (const auto& candidate : candidates) outcomes.push_back(evaluate(workload, candidate));
    return outcomes;
  }
};

TEST_F(RecordingFileTest, OfASearch) {
  const TwoByTwo backend;
  TuneRequest request;
  request.identity.problem.model = "m";
  request.backends = {&backend};
  request.workloads = {{4, RoutingKind::uniform, 1}};
  request.strategy = StrategyKind::exhaustive;
  TableEvaluator evaluator;
  const auto report = tune(request, evaluator, nullptr, {[] { return 0.0; }, {}, nullptr});
  ASSERT_TRUE(report);
  const auto recording = through_file(record(request, *report));
  ASSERT_TRUE(recording) << recording.error().what;
  RecordedRow expected = small_row();
  std::swap(expected.parts[0].outcomes[0], expected.parts[0].outcomes[1]);  // the default was first
  expected.parts[0].outcomes[1].us_spread = 1.4826;                         // of 9 10 11
  expected.parts[0].outcomes[2].us_spread = 0;
  EXPECT_EQ(recording->rows, std::vector<RecordedRow>{expected});
  EXPECT_EQ(recording->identity.problem.model, "m");
}

}  // namespace
}  // namespace moetune
