// Each fault alone: what it is called, and that the next candidate is not harmed by it.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>

#include "fault_test.h"

namespace moetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;  // takes terabytes of address space, and some signals for itself
#else
constexpr bool kSanitized = false;
#endif

struct Expected {
  Fault fault;
  OutcomeStatus status;
  const char* diagnosis;  ///< part of it
};

void PrintTo(const Expected& expected, std::ostream* out) { *out << to_string(expected.fault); }

class SingleFault : public FaultTest, public ::testing::WithParamInterface<Expected> {};

TEST_P(SingleFault, IsNamedAndTheNextCandidateRuns) {
  const bool hangs = GetParam().status == OutcomeStatus::timed_out;
  if (hangs) options_.evaluate_s = 1;
  WorkerEvaluator evaluator(job_, options_);
  const Outcome outcome = evaluator.evaluate(kWorkload, candidate(GetParam().fault));
  EXPECT_EQ(to_string(outcome.status), to_string(GetParam().status)) << outcome.diagnosis << "\n" << outcome.log;
  EXPECT_THAT(outcome.diagnosis, HasSubstr(GetParam().diagnosis));
  EXPECT_TRUE(outcome.samples_us.empty());
  const Outcome next = evaluator.evaluate(kWorkload, candidate(Fault::none));
  EXPECT_EQ(next.status, OutcomeStatus::ok) << next.diagnosis;
  EXPECT_EQ(evaluator.starts(), hangs || spoils(outcome.status) ? 2 : 1);
}

INSTANTIATE_TEST_SUITE_P(
    All, SingleFault,
    ::testing::Values(
        Expected{Fault::segfaults, OutcomeStatus::crashed, "killed by signal 11 (Segmentation fault) in phase 'check'"},
        Expected{Fault::segfaults_in_configure, OutcomeStatus::crashed,
                 "killed by signal 11 (Segmentation fault) in phase 'configure'"},
        Expected{Fault::aborts, OutcomeStatus::crashed, "killed by signal 6 (Aborted) in phase 'check'"},
        Expected{Fault::exits, OutcomeStatus::crashed, "exit code 0 in phase 'check'"},
        Expected{Fault::kills_itself, OutcomeStatus::out_of_memory, "probably for want of memory"},
        Expected{Fault::hangs, OutcomeStatus::timed_out, "in phase 'check'"},
        Expected{Fault::hangs_in_configure, OutcomeStatus::timed_out, "in phase 'configure'"},
        Expected{Fault::ignores_sigterm, OutcomeStatus::timed_out, "in phase 'check'"},
        Expected{Fault::spins, OutcomeStatus::timed_out, "in phase 'check'"},
        Expected{Fault::stops_itself, OutcomeStatus::timed_out, "in phase 'check'"},
        Expected{Fault::throws, OutcomeStatus::crashed, "the backend threw: tile does not fit"},
        Expected{Fault::throws_a_number, OutcomeStatus::crashed, "killed by signal 6 (Aborted) in phase 'check'"},
        Expected{Fault::fails, OutcomeStatus::launch_failed, "first call: the device refused the launch"},
        Expected{Fault::cannot_configure, OutcomeStatus::compile_failed, "configuring: no kernel has such a tile"},
        Expected{Fault::says_out_of_memory, OutcomeStatus::out_of_memory, "no room for 40 GB"},
        Expected{Fault::answers_nan, OutcomeStatus::nan, "first call: token 1, column 32 is not finite"},
        Expected{Fault::answers_wrongly, OutcomeStatus::wrong_result, "first call: relative error 9.99e-02, at most"},
        Expected{Fault::one_value_wrong, OutcomeStatus::wrong_result, "token 2, column 63"},
        Expected{Fault::right_once, OutcomeStatus::wrong_result, "call 2: "},
        Expected{Fault::writes_nothing, OutcomeStatus::nan, "first call: token 0, column 0 was not written"},
        Expected{Fault::writes_beside, OutcomeStatus::wrong_result, "1 values were written outside the output"},
        Expected{Fault::endless_line, OutcomeStatus::crashed, "endless line in phase 'check'"},
        Expected{Fault::closes_pipe, OutcomeStatus::crashed, "closed its pipe and went on in phase 'check'"},
        Expected{Fault::leaves_a_process_and_dies, OutcomeStatus::crashed, "Segmentation fault"},
        Expected{Fault::lying_clock, OutcomeStatus::launch_failed, "timing: a call was timed at nan us"}),
    [](const auto& test) { return std::string(to_string(test.param.fault)); });

TEST_F(FaultTest, NoiseIsNoFault) {
  WorkerEvaluator evaluator(job_, options_);
  for (const Fault fault :
       {Fault::none, Fault::prints, Fault::prints_on_protocol, Fault::floods_log, Fault::leaves_a_process}) {
    const Outcome outcome = evaluator.evaluate(kWorkload, candidate(fault, 70));
    EXPECT_EQ(outcome.status, OutcomeStatus::ok) << to_string(fault) << ": " << outcome.diagnosis;
    EXPECT_THAT(outcome.samples_us, ::testing::Each(70));
    EXPECT_EQ(outcome.pairs, 6);
  }
  EXPECT_EQ(evaluator.starts(), 1);
}

TEST_F(FaultTest, WeightsAreNotThereToBeWritten) {
  WorkerEvaluator evaluator(job_, options_);
  const Outcome outcome = evaluator.evaluate(kWorkload, candidate(Fault::writes_into_weights));
  EXPECT_EQ(outcome.status, OutcomeStatus::crashed) << outcome.diagnosis;
  EXPECT_THAT(outcome.diagnosis, HasSubstr(kSanitized ? "exit code" : "Segmentation fault"));
}

TEST_F(FaultTest, MemoryThatEndsIsNamed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs more address space than a limit leaves";
  options_.memory_limit_bytes = std::int64_t{1} << 30;
  WorkerEvaluator evaluator(job_, options_);
  for (const Fault fault : {Fault::allocates_without_end, Fault::allocates_in_a_thread}) {
    const Outcome outcome = evaluator.evaluate(kWorkload, candidate(fault));
    EXPECT_EQ(outcome.status, OutcomeStatus::out_of_memory) << to_string(fault) << ": " << outcome.diagnosis;
  }
  EXPECT_EQ(evaluator.evaluate(kWorkload, candidate(Fault::none)).status, OutcomeStatus::ok);
}

TEST_F(FaultTest, BackendsThatDieBeforeAConfig) {
  WorkerEvaluator evaluator(job_, options_);
  for (const char* id : {"test:dies_in_open", "test:dies_in_why_not"}) {
    const Outcome outcome = evaluator.evaluate(kWorkload, {id, faulty_config(Fault::none, 1)});
    EXPECT_EQ(outcome.status, OutcomeStatus::crashed) << id;
    EXPECT_THAT(outcome.diagnosis, HasSubstr("(Segmentation fault) in phase 'load'"));
  }
  const Outcome refused = evaluator.evaluate(kWorkload, {"test:refuses", {}});
  EXPECT_EQ(refused.status, OutcomeStatus::unsupported);
  EXPECT_THAT(refused.reasons, SizeIs(2));
  EXPECT_EQ(evaluator.starts(), 3);
}

TEST_F(FaultTest, TheLogIsTheCandidatesOwn) {
  WorkerEvaluator evaluator(job_, options_);
  const Outcome first = evaluator.evaluate(kWorkload, candidate(Fault::aborts));
  EXPECT_THAT(first.log, HasSubstr("assertion failed: tile fits\n"));
  const Outcome second = evaluator.evaluate(kWorkload, candidate(Fault::answers_nan));
  EXPECT_EQ(second.log, "");
}

TEST_F(FaultTest, TheSameWorkerRunsWhatIsRight) {
  WorkerEvaluator evaluator(job_, options_);
  for (std::int64_t tokens = 1; tokens < 200; tokens += 33)
    EXPECT_EQ(evaluator.evaluate({tokens, RoutingKind::power_law, 5}, candidate(Fault::none)).status,
              OutcomeStatus::ok);
  EXPECT_EQ(evaluator.starts(), 1);
}

TEST_F(FaultTest, ARaceGoesOnWithoutWhoFails) {
  WorkerEvaluator evaluator(job_, options_);
  // Long enough for one sample a turn: three turns, and two configures before the third.
  const std::vector<Candidate> racers{candidate(Fault::none, 5000), candidate(Fault::crashes_in_third_configure, 2100),
                                      candidate(Fault::throws_in_third_configure, 2200),
                                      candidate(Fault::answers_nan, 2300), candidate(Fault::none, 3000)};
  const auto outcomes = evaluator.race(kWorkload, racers);
  ASSERT_EQ(outcomes.size(), racers.size());
  EXPECT_THAT(outcomes[0].samples_us, ElementsAre(5000, 5000, 5000));
  EXPECT_EQ(outcomes[1].status, OutcomeStatus::crashed);
  EXPECT_THAT(outcomes[1].diagnosis, HasSubstr("killed by signal 6 (Aborted) in phase 'time'"));
  EXPECT_EQ(outcomes[2].status, OutcomeStatus::crashed);
  EXPECT_THAT(outcomes[2].diagnosis, HasSubstr("configured three times"));
  EXPECT_EQ(outcomes[3].status, OutcomeStatus::nan);
  EXPECT_THAT(outcomes[4].samples_us, ElementsAre(3000, 3000, 3000));
  EXPECT_EQ(evaluator.starts(), 4);
}

TEST_F(FaultTest, CtrlCEndsACandidateThatHangs) {
  std::atomic<bool> stop = false;
  options_.evaluate_s = 1000;
  options_.stop_flag = &stop;
  WorkerEvaluator evaluator(job_, options_);
  ASSERT_TRUE(evaluator.open());
  const std::jthread user([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    stop = true;
  });
  const Outcome outcome = evaluator.evaluate(kWorkload, candidate(Fault::ignores_sigterm));
  EXPECT_EQ(outcome.status, OutcomeStatus::skipped);
  EXPECT_TRUE(processes_with(mark_).empty());
  EXPECT_EQ(evaluator.evaluate(kWorkload, candidate(Fault::none)).status, OutcomeStatus::skipped);
  EXPECT_EQ(evaluator.race(kWorkload, std::vector{candidate(Fault::none)}).front().status, OutcomeStatus::skipped);
  EXPECT_EQ(evaluator.starts(), 1);
}

TEST_F(FaultTest, NoWorkerOutlivesAKilledParent) {
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    WorkerEvaluator evaluator(job_, options_);
    (void)evaluator.evaluate(kWorkload, candidate(Fault::ignores_sigterm));
    ::_exit(0);
  }
  const double give_up = now_s() + 20;
  while (processes_with(mark_).empty() && now_s() < give_up) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(processes_with(mark_).empty());
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  // That nothing is left is for TearDown to see.
}

}  // namespace
}  // namespace moetune
