// Candidates that crash, hang and lie, in real worker processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "base/clock.h"
#include "faulty_backend.h"
#include "tune/tuner.h"
#include "worker/worker.h"
#include "worker/worker_evaluator.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

Job small_job() {
  Job job;
  job.problem.experts = job.problem.experts_global = 4;
  job.problem.top_k = 2;
  job.problem.hidden = 64;
  job.problem.intermediate = 32;
  return job;
}

WorkerOptions options() {
  WorkerOptions o;
  o.argv = {own_path(), "worker"};
  o.open_s = 10;
  o.evaluate_s = 0.5;
  o.stop = {.min_samples = 3, .max_samples = 5, .relative_noise = 0.1, .min_s = 0, .max_s = 0.1};
  o.race_stop = o.stop;
  return o;
}

Candidate candidate(std::string_view name, std::int64_t n = 0) { return {fmt::format("test:{}", name), {{{"n", n}}}}; }

/// Processes whose parent is this one.
int children() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string pid, name, state;
    long parent = 0;
    if (stat >> pid >> name >> state >> parent && parent == ::getpid() && state != "Z") ++count;
  }
  return count;
}

TEST(Faults, EachIsNamedAndTheNextCandidateIsFine) {
  {
    WorkerEvaluator evaluator(small_job(), options());
    for (const auto& fault : faults()) {
      const Outcome bad = evaluator.evaluate({3, RoutingKind::uniform, 1}, candidate(fault.name));
      EXPECT_EQ(bad.status, fault.expected) << fault.name << ": " << to_string(bad.status) << ": " << bad.diagnosis;
      EXPECT_FALSE(bad.diagnosis.empty()) << fault.name;
      EXPECT_TRUE(bad.samples_us.empty()) << fault.name;
      const Outcome good = evaluator.evaluate({3, RoutingKind::uniform, 1}, candidate("right"));
      EXPECT_EQ(good.status, OutcomeStatus::ok) << "after " << fault.name << ": " << good.diagnosis;
    }
    EXPECT_EQ(children(), 1);
  }
  EXPECT_EQ(children(), 0);
}

TEST(Faults, DiagnosesSayWhatAndWhere) {
  WorkerEvaluator evaluator(small_job(), options());
  const Workload workload{1, RoutingKind::uniform, 1};
  EXPECT_EQ(evaluator.evaluate(workload, candidate("segfault")).diagnosis,
            "the worker ended: killed by signal 11 (Segmentation fault) in phase 'check'");
  EXPECT_THAT(evaluator.evaluate(workload, candidate("segfault")).log, HasSubstr("a library that prints"));
  EXPECT_EQ(evaluator.evaluate(workload, candidate("hang")).diagnosis, "no answer within 0.5 s in phase 'check'");
  EXPECT_THAT(evaluator.evaluate(workload, candidate("unwritten")).diagnosis,
              HasSubstr("token 0, column 0 was not written"));
  EXPECT_THAT(evaluator.evaluate(workload, candidate("right_only_once")).diagnosis, HasSubstr("after timing"));
  EXPECT_EQ(evaluator.evaluate(workload, candidate("refuses")).reasons.size(), 2U);
  EXPECT_THAT(evaluator.evaluate(workload, candidate("absent")).diagnosis, HasSubstr("no backend 'test:absent'"));
}

TEST(Faults, AWorkerThatIsNoWorkerIsGivenUp) {
  for (const char* program : {"/bin/true", "/nonexistent"}) {
    WorkerOptions o = options();
    o.argv = {program};
    WorkerEvaluator evaluator(small_job(), o);
    EXPECT_FALSE(evaluator.open()) << program;
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(evaluator.evaluate({}, candidate("right")).status, OutcomeStatus::launch_failed);
    EXPECT_LE(evaluator.starts(), 3) << program;
  }
}

TEST(Faults, AnInterruptIsNoticedWhileACandidateHangs) {
  std::atomic<bool> stop{false};
  WorkerOptions o = options();
  o.evaluate_s = 60;
  o.stop_flag = &stop;
  WorkerEvaluator evaluator(small_job(), o);
  ASSERT_TRUE(evaluator.open());
  std::jthread interrupter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    stop = true;
  });
  const double start = now_s();
  EXPECT_EQ(evaluator.evaluate({}, candidate("hang")).status, OutcomeStatus::skipped);
  EXPECT_LT(now_s() - start, 30);
  EXPECT_EQ(children(), 0);
}

/// 200 candidates of which 50 crash, hang, fail or answer wrongly: the search ends, names each, and the winner is
/// right.
TEST(Faults, TheSearchSurvivesThemAll) {
  Registry registry;
  register_faulty(registry);
  TuneRequest request;
  request.identity.problem = small_job().problem;
  request.strategy = StrategyKind::exhaustive;
  request.workloads = {{2, RoutingKind::uniform, 1}};
  for (const auto& backend : registry.backends())
    if (backend->id() != "test:refuses") request.backends.push_back(backend.get());
  WorkerOptions o = options();
  o.evaluate_s = 0.3;
  WorkerEvaluator evaluator(small_job(), o);
  const auto report = tune(request, evaluator, nullptr, {now_s, {}, nullptr});
  ASSERT_TRUE(report);
  const TuneRow& row = report->rows.front();
  EXPECT_EQ(row.evaluated.size(), request.backends.size() * 13);
  std::map<std::string, int> wrongly;
  int failures = 0;
  for (const auto& e : row.evaluated) {
    const auto fault = std::find_if(faults().begin(), faults().end(), [&](const Fault& f) {
      return e.candidate.backend == fmt::format("test:{}", f.name);
    });
    const auto expected = fault == faults().end() ? OutcomeStatus::ok : fault->expected;
    failures += expected == OutcomeStatus::ok ? 0 : 1;
    if (e.outcome.status != expected) ++wrongly[e.candidate.backend + " " + std::string(to_string(e.outcome.status))];
  }
  EXPECT_TRUE(wrongly.empty()) << wrongly.begin()->first;
  EXPECT_GE(row.evaluated.size(), 200U);
  EXPECT_GE(failures, 50);
  ASSERT_TRUE(row.winner);
  EXPECT_EQ(row.winner->backend, "test:right");
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "worker") {
    moetune::Registry registry;
    moetune::register_faulty(registry);
    return moetune::worker_main(registry);
  }
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
