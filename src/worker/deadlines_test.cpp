#include "worker/deadlines.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

PhaseLimits limits() {
  PhaseLimits limits;
  limits.set(Phase::reference, 100);
  limits.set(Phase::configure, 10);
  limits.set(Phase::check, 20);
  limits.set(Phase::time, 5);
  return limits;
}

TEST(PhaseClock, EachPhaseHasItsOwnTime) {
  PhaseClock clock(1000, limits(), 3, std::nullopt, 500);
  EXPECT_FALSE(clock.phase());
  EXPECT_DOUBLE_EQ(clock.deadline(), 1003);
  clock.enter(Phase::configure, 1001);
  EXPECT_DOUBLE_EQ(clock.deadline(), 1011);
  EXPECT_DOUBLE_EQ(clock.allowed(), 10);
  clock.enter(Phase::check, 1004);
  EXPECT_DOUBLE_EQ(clock.deadline(), 1024);
  EXPECT_EQ(clock.phase(), Phase::check);
}

TEST(PhaseClock, ACandidatesTimeLeavesOutTheReference) {
  PhaseClock clock(0, limits(), 3, 8.0, 500);
  clock.enter(Phase::configure, 1);  // what came before was nobody's
  EXPECT_DOUBLE_EQ(clock.deadline(), 9);
  clock.enter(Phase::reference, 3);  // 2 of 8 are spent
  EXPECT_DOUBLE_EQ(clock.deadline(), 103);
  clock.enter(Phase::check, 90);
  EXPECT_DOUBLE_EQ(clock.deadline(), 96);
  clock.enter(Phase::time, 95);
  EXPECT_DOUBLE_EQ(clock.deadline(), 96);
  clock.enter(Phase::check, 99);
  EXPECT_DOUBLE_EQ(clock.deadline(), 99);
}

TEST(PhaseClock, NothingExtendsTheWhole) {
  PhaseClock clock(0, limits(), 3, std::nullopt, 30);
  for (double now = 1; now < 60; now += 4) {
    clock.enter(Phase::check, now);
    EXPECT_LE(clock.deadline(), 30);
  }
}

TEST(PhaseLimits, GrowWithTheProblem) {
  Problem small;
  small.experts = small.experts_global = 8;
  small.top_k = 2;
  small.hidden = small.intermediate = 256;
  Problem large = small;
  large.hidden = large.intermediate = 8192;
  const StopRule stop;
  const auto few = phase_limits(small, {1, RoutingKind::uniform, 1}, stop);
  const auto more_weights = phase_limits(large, {1, RoutingKind::uniform, 1}, stop);
  const auto more_tokens = phase_limits(large, {4096, RoutingKind::uniform, 1}, stop);
  for (const Phase phase : {Phase::open, Phase::load, Phase::configure, Phase::reference, Phase::check, Phase::time}) {
    EXPECT_GE(few.of(phase), 30) << to_string(phase);
    EXPECT_LT(few.of(phase), 100) << to_string(phase);
    EXPECT_GT(more_weights.of(phase), few.of(phase)) << to_string(phase);
  }
  EXPECT_GT(more_tokens.of(Phase::check), more_weights.of(Phase::check));
  EXPECT_GT(phase_limits(large).of(Phase::ceilings), 0);
}

TEST(PhaseLimits, ACallThatIsKnownBoundsTheOthers) {
  Problem problem;
  problem.experts = problem.experts_global = 128;
  problem.top_k = 8;
  problem.hidden = 7168;
  problem.intermediate = 2048;
  const Workload workload{16384, RoutingKind::uniform, 1};
  const double blind = phase_limits(problem, workload, {}).of(Phase::check);
  EXPECT_GT(blind, 3600);
  const double seen = phase_limits(problem, workload, {}, 2.0).of(Phase::check);
  EXPECT_GT(seen, 200);
  EXPECT_LT(seen, 300);
}

}  // namespace
}  // namespace moetune
