#include "worker/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <stdexcept>

#include "worker/test_session.h"

namespace moetune {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// What a test wants of a session, and what was asked of it.
struct Script {
  std::function<Status(const Config&)> configure = [](const Config&) { return Status(); };
  std::function<void(const Call&)> after_run = [](const Call&) {};
  std::function<double(const Config&)> us = [](const Config&) { return 5000.0; };
  int opened = 0;
  std::vector<std::string> log;  ///< "a1" for a session of backend a configured with n = 1
};

class ScriptedSession : public ReferenceSession {
 public:
  ScriptedSession(const Problem& problem, const Layer& layer, std::string name, Script& script)
      : ReferenceSession(problem, layer), name_(std::move(name)), script_(script) {}

  Status configure(const Config& config, std::int64_t /*max_tokens*/) override {
    script_.log.push_back(name_ + std::to_string(config.get("n")));
    config_ = config;
    return script_.configure(config);
  }
  Status run(const Call& call) override {
    MOETUNE_CHECK(ReferenceSession::run(call));
    script_.after_run(call);
    return {};
  }
  Result<std::vector<double>> time(std::span<const Call> calls) override {
    for (const Call& call : calls) MOETUNE_CHECK(run(call));
    return std::vector<double>(calls.size(), script_.us(config_));
  }

 private:
  std::string name_;
  Script& script_;
  Config config_;
};

class ScriptedBackend : public Backend {
 public:
  ScriptedBackend(std::string name, Script& script) : name_(std::move(name)), script_(script) {}

  std::string id() const override { return "test:" + name_; }
  std::string summary() const override { return "scripted"; }
  std::string revision() const override { return "1"; }
  Reasons why_not(const Problem&, const Target&) const override {
    if (name_ != "refuses") return {};
    return {{ReasonCode::shape, "hidden 64", "a multiple of 128", "", ""}, {ReasonCode::arch, "sse2", "avx2", "", ""}};
  }
  Space space(const Problem&, const Target&, std::int64_t) const override { return {}; }
  Config default_config(const Problem&, const Target&, std::int64_t) const override { return {{{"n", 0}}}; }
  Result<std::unique_ptr<Session>> open(const Problem& problem, const Layer& layer, const Target&) const override {
    ++script_.opened;
    return std::make_unique<ScriptedSession>(problem, layer, name_, script_);
  }

 private:
  std::string name_;
  Script& script_;
};

class BenchTest : public ::testing::Test {
 protected:
  BenchTest() {
    for (const char* name : {"a", "b", "c", "refuses"}) registry_.add(std::make_unique<ScriptedBackend>(name, script_));
    Job job;
    job.problem = tiny_problem();
    bench_.emplace(registry_, job, random_layer(job.problem, 1).value(),
                   [this](Phase phase, std::size_t) { phases_.push_back(phase); });
  }

  static EvaluateRequest request(std::int64_t tokens, std::vector<Candidate> candidates) {
    EvaluateRequest request;
    request.workload = {tokens, RoutingKind::uniform, 1};
    request.candidates = std::move(candidates);
    request.stop = {4, 4, 1, 0, 1000};
    return request;
  }
  static Candidate candidate(const std::string& name, std::int64_t n = 0) { return {"test:" + name, {{{"n", n}}}}; }
  Outcome evaluate(std::int64_t tokens = 3, const std::string& name = "a") {
    return bench_->evaluate(request(tokens, {candidate(name)})).value();
  }

  Script script_;
  Registry registry_;
  std::vector<Phase> phases_;
  std::optional<Bench> bench_;
};

TEST_F(BenchTest, RightIsTimed) {
  const Outcome outcome = evaluate();
  EXPECT_EQ(outcome.status, OutcomeStatus::ok) << outcome.diagnosis;
  EXPECT_THAT(outcome.samples_us, ElementsAre(5000, 5000, 5000, 5000));
  EXPECT_GT(outcome.relative_error, 0);
  EXPECT_LT(outcome.relative_error, outcome.tolerance);
  EXPECT_EQ(outcome.pairs, 6);
  EXPECT_FALSE(bench_->spoiled());
  EXPECT_THAT(phases_, ElementsAre(Phase::load, Phase::reference, Phase::load, Phase::configure, Phase::check,
                                   Phase::time, Phase::check));
}

TEST_F(BenchTest, ReferenceAndSessionsAreKept) {
  (void)evaluate(1);
  (void)evaluate(2);
  phases_.clear();
  (void)evaluate(1);
  EXPECT_THAT(phases_, Each(::testing::Ne(Phase::reference)));
  EXPECT_EQ(script_.opened, 1);
  (void)evaluate(1, "b");
  (void)evaluate(1, "c");  // two are kept, so that a is gone
  (void)evaluate(1, "b");
  EXPECT_EQ(script_.opened, 3);
  (void)evaluate(1, "a");
  EXPECT_EQ(script_.opened, 4);
}

TEST_F(BenchTest, AllReasonsOfARefusal) {
  const Outcome outcome = evaluate(1, "refuses");
  EXPECT_EQ(outcome.status, OutcomeStatus::unsupported);
  EXPECT_EQ(outcome.reasons.size(), 2U);
  EXPECT_EQ(outcome.diagnosis, "hidden 64, needs a multiple of 128");
  EXPECT_EQ(evaluate(1, "nobody").status, OutcomeStatus::unsupported);
}

TEST_F(BenchTest, UnwrittenNanAndStrayAreNamed) {
  script_.after_run = [](const Call& call) { call.output[130] = 0x7FC1; };  // the poison again: nothing written
  EXPECT_EQ(evaluate().diagnosis, "first call: token 2, column 2 was not written");
  script_.after_run = [](const Call& call) { call.output[64] = 0x7F80; };  // infinity
  const Outcome infinite = evaluate();
  EXPECT_EQ(infinite.status, OutcomeStatus::nan);
  EXPECT_EQ(infinite.diagnosis, "first call: token 1, column 0 is not finite");
  script_.after_run = [](const Call& call) { *(call.output.data() + call.output.size()) = 0; };
  const Outcome stray = evaluate();
  EXPECT_EQ(stray.status, OutcomeStatus::wrong_result);
  EXPECT_EQ(stray.diagnosis, "first call: 1 values were written outside the output");
  script_.after_run = [](const Call& call) { *(call.output.data() - 1) = 0; };
  EXPECT_EQ(evaluate().status, OutcomeStatus::wrong_result);
  EXPECT_TRUE(bench_->spoiled());
}

TEST_F(BenchTest, OneWrongValueIsFound) {
  script_.after_run = [](const Call& call) { call.output[70] = float_to_bf16(50.0F); };
  const Outcome outcome = evaluate();
  EXPECT_EQ(outcome.status, OutcomeStatus::wrong_result);
  EXPECT_GT(outcome.relative_error, outcome.tolerance);
  EXPECT_THAT(outcome.diagnosis, HasSubstr("worst at token 1, column 6: 50, expected"));
}

// A call of one token meets two of the four experts; a backend that fails with the others must not pass.
TEST_F(BenchTest, EveryExpertIsCheckedWithFewTokens) {
  std::set<std::int32_t> met;
  script_.after_run = [&](const Call& call) { met.insert(call.routing->ids.begin(), call.routing->ids.end()); };
  script_.us = [](const Config&) -> double { throw std::runtime_error("not timed in this test"); };
  (void)evaluate(1);
  EXPECT_EQ(met.size(), 4U);
}

TEST_F(BenchTest, WhatIsRightAtFirstOnlyIsFound) {
  int runs = 0;
  script_.after_run = [&](const Call& call) {
    if (++runs > 8) call.output[0] = float_to_bf16(9.0F);
  };
  const Outcome outcome = evaluate();
  EXPECT_EQ(outcome.status, OutcomeStatus::wrong_result);
  EXPECT_THAT(outcome.diagnosis, StartsWith("after timing: "));
}

TEST_F(BenchTest, RowsOfLargeCallsAreAllLookedAtForNan) {
  script_.after_run = [](const Call& call) { call.output[call.output.size() - 65] = 0x7FC0; };
  const Outcome outcome = evaluate(200);
  EXPECT_EQ(outcome.diagnosis, "first call: token 198, column 63 is not finite");
}

TEST_F(BenchTest, ClocksThatLieAreFailures) {
  for (const double us :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    script_.us = [us](const Config&) { return us; };
    EXPECT_EQ(evaluate().status, OutcomeStatus::launch_failed) << us;
  }
}

TEST_F(BenchTest, ErrorsAndThrowsBecomeStatuses) {
  script_.configure = [](const Config&) { return fail("no such tile", {"use 64"}); };
  Outcome outcome = evaluate();
  EXPECT_EQ(outcome.status, OutcomeStatus::compile_failed);
  EXPECT_EQ(outcome.diagnosis, "configuring: no such tile; use 64");
  EXPECT_FALSE(bench_->spoiled());
  script_.configure = [](const Config&) { return fail("40 GB", {}, ErrorKind::out_of_memory); };
  EXPECT_EQ(evaluate().status, OutcomeStatus::out_of_memory);
  script_.configure = [](const Config&) { return fail("gone", {}, ErrorKind::device_lost); };
  EXPECT_EQ(evaluate().status, OutcomeStatus::launch_failed);
  script_.configure = [](const Config&) -> Status { throw std::runtime_error("tile too large"); };
  outcome = evaluate();
  EXPECT_EQ(outcome.status, OutcomeStatus::crashed);
  EXPECT_EQ(outcome.diagnosis, "the backend threw: tile too large");
  script_.configure = [](const Config&) -> Status { throw std::bad_alloc(); };
  EXPECT_EQ(evaluate().status, OutcomeStatus::out_of_memory);
  EXPECT_TRUE(bench_->spoiled());
}

TEST_F(BenchTest, AWorkloadWithoutReferenceIsNotTheCandidatesFailure) {
  Job job;
  job.problem = tiny_problem();
  job.problem.activation.kind = ActivationKind::situ;
  Bench bench(registry_, job, random_layer(job.problem, 1).value(), [](Phase, std::size_t) {});
  const auto outcome = bench.evaluate(request(1, {candidate("a")}));
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().what, HasSubstr("situ"));
}

TEST_F(BenchTest, RacersTakeTurns) {
  script_.us = [](const Config& config) { return static_cast<double>(config.get("n")) * 1000; };
  const std::vector<Candidate> racers{candidate("a", 3), candidate("b", 4), candidate("c", 5)};
  const auto outcomes = bench_->race(request(2, racers)).value();
  ASSERT_EQ(outcomes.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(outcomes[i].status, OutcomeStatus::ok) << outcomes[i].diagnosis;
    EXPECT_THAT(outcomes[i].samples_us,
                ElementsAre(3000 + 1000 * i, 3000 + 1000 * i, 3000 + 1000 * i, 3000 + 1000 * i));
  }
  // Each is checked, then four turns each; nobody's weights are loaded anew.
  std::vector<std::string> turns{"a3", "b4", "c5"};
  std::vector<std::string> all;
  for (int round = 0; round < 5; ++round) all.insert(all.end(), turns.begin(), turns.end());
  EXPECT_EQ(script_.log, all);
  EXPECT_EQ(script_.opened, 3);
}

TEST_F(BenchTest, ARaceEndsWithTheFirstThatSpoilsIt) {
  int configured = 0;
  script_.configure = [&](const Config& config) -> Status {
    if (config.get("n") == 2 && ++configured == 3) throw std::runtime_error("third time");
    return {};
  };
  const auto outcomes = bench_->race(request(2, {candidate("a", 1), candidate("b", 2)})).value();
  EXPECT_TRUE(bench_->spoiled());
  EXPECT_EQ(outcomes[0].status, OutcomeStatus::ok);
  EXPECT_EQ(outcomes[0].samples_us.size(), 2U);
  EXPECT_EQ(outcomes[1].status, OutcomeStatus::crashed);
  EXPECT_TRUE(outcomes[1].samples_us.empty());
}

TEST(ComparedTokens, AllOrDistinctOnesWithBothEnds) {
  EXPECT_TRUE(compared_tokens(64, 1).empty());
  for (const std::int64_t tokens : {65, 100, 4096}) {
    const auto some = compared_tokens(tokens, 7);
    ASSERT_EQ(std::ssize(some), kSampledTokens);
    EXPECT_EQ(some.front(), 0);
    EXPECT_EQ(some.back(), tokens - 1);
    for (std::size_t i = 1; i < some.size(); ++i) EXPECT_LT(some[i - 1], some[i]);
    EXPECT_EQ(some, compared_tokens(tokens, 7));
    EXPECT_NE(some, compared_tokens(tokens, 8));
  }
}

}  // namespace
}  // namespace moetune
