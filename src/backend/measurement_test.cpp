#include "backend/measurement.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

TEST(Measurement, WorkedByHand) {
  Problem p;
  p.experts = p.experts_global = 4;
  p.top_k = 2;
  p.hidden = 100;
  p.intermediate = 10;
  Outcome outcome;
  outcome.samples_us = {9, 10, 11};
  outcome.active_experts = 1.5;
  outcome.pairs = 3;
  Ceilings c;
  c.reads = {{1, 1.0}, {1'000'000, 1.0}};  // a byte a nanosecond
  c.bf16_tflops = 0.01;                    // 10,000 operations a microsecond
  const Measurement row = measurement_of(p, {3, RoutingKind::uniform, 1}, {"x:y", {}}, outcome, c);
  // An expert: 3 matrices of 1000 bf16 = 6000 bytes. Input and output: 3 tokens · 100 · 2 bytes, twice.
  EXPECT_DOUBLE_EQ(row.bytes, 1.5 * 6000 + 1200);
  EXPECT_DOUBLE_EQ(row.flops, 3 * 2 * 3 * 1000);
  EXPECT_NEAR(row.floor_us, 10.2, 1e-9);
  EXPECT_EQ(row.bound, Bound::memory);
  EXPECT_NEAR(*row.percent_of_floor, 102, 1e-9);
  EXPECT_DOUBLE_EQ(*row.gb_s, 1.02);
  EXPECT_DOUBLE_EQ(*row.gflops, 1.8);
  EXPECT_DOUBLE_EQ(*row.percent_of_peak, 18);
}

TEST(Measurement, AFailureHasNoTimes) {
  Outcome outcome;
  outcome.status = OutcomeStatus::crashed;
  outcome.diagnosis = "killed by signal 11";
  const Measurement row = measurement_of({}, {}, {"x:y", {}}, outcome, {});
  EXPECT_FALSE(row.us_median.has_value());
  EXPECT_EQ(row.diagnosis, "killed by signal 11");
  EXPECT_TRUE(to_json(row)["percent_of_floor"].is_null());
}

}  // namespace
}  // namespace moetune
