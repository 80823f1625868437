#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "measure/floor.h"
#include "measure/stats.h"
#include "measure/stop_rule.h"
#include "measure/verdict.h"

namespace moetune {
namespace {

TEST(Stats, WorkedByHand) {
  const std::vector<double> values = {5, 1, 3, 2, 100};
  EXPECT_DOUBLE_EQ(median(values), 3);                  // 1 2 3 5 100
  EXPECT_DOUBLE_EQ(robust_spread(values), 1.4826 * 2);  // distances 2 0 1 2 97 -> median 2; quartiles 2 and 5
  EXPECT_DOUBLE_EQ(robust_spread(std::vector<double>{100, 200, 100}), 50 / 1.349);  // quartiles 100 and 150
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 2);
  EXPECT_DOUBLE_EQ(quantile(values, 0.1), 1.4);  // place 0.4 between 1 and 2
  EXPECT_DOUBLE_EQ(quantile(values, -1), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 2), 100);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{4, 1}), 2.5);
  EXPECT_DOUBLE_EQ(median({}), 0);
  EXPECT_DOUBLE_EQ(robust_spread({}), 0);
}

TEST(Stats, SummaryDropsWhatIsNoTime) {
  const Summary s = summarize(std::vector<double>{2, std::nan(""), -1, 0, std::numeric_limits<double>::infinity(), 4});
  EXPECT_EQ(s.samples, 2);
  EXPECT_EQ(s.dropped, 4);
  EXPECT_DOUBLE_EQ(s.median, 3);
  EXPECT_DOUBLE_EQ(s.spread, 1.4826);
  EXPECT_NEAR(s.error, 1.2533141373 * 1.4826 / std::sqrt(2.0), 1e-9);
  EXPECT_EQ(s.interval, (Interval{2, 4}));
  EXPECT_EQ(summarize({}).noise(), 1.0);
}

TEST(Stats, HalfOfTheSamplesMayBeSpoiled) {
  std::vector<double> values(11, 10.0);
  for (std::size_t i = 0; i < 5; ++i) values[i] = 1e6;
  EXPECT_DOUBLE_EQ(summarize(values).median, 10);
}

// Ranks of the published tables for the 95 % sign-test interval (Conover, table A3 with p = 1/2).
TEST(Stats, IntervalOfTheMedianTakesThePublishedRanks) {
  const auto interval_of = [](std::size_t n) {
    std::vector<double> ranks(n);
    std::iota(ranks.rbegin(), ranks.rend(), 1.0);  // n … 1: the order must not matter
    return median_interval(ranks);
  };
  EXPECT_EQ(interval_of(1), (Interval{1, 1}));
  EXPECT_EQ(interval_of(5), (Interval{1, 5}));  // 93.75 % only
  EXPECT_EQ(interval_of(6), (Interval{1, 6}));
  EXPECT_EQ(interval_of(8), (Interval{1, 8}));
  EXPECT_EQ(interval_of(9), (Interval{2, 8}));
  EXPECT_EQ(interval_of(10), (Interval{2, 9}));
  EXPECT_EQ(interval_of(15), (Interval{4, 12}));
  EXPECT_EQ(interval_of(20), (Interval{6, 15}));
  EXPECT_EQ(interval_of(25), (Interval{8, 18}));
  // Far past where 2^-n is a double: n/2 - 0.98 sqrt(n) = 4902, give or take one.
  EXPECT_NEAR(interval_of(10'000).low, 4902, 1.5);
  EXPECT_EQ(median_interval({}), (Interval{0, 0}));
}

TEST(StopRule, StopsWhenQuietButNotBeforeTheLeast) {
  Stopper stopper({.min_samples = 3, .max_samples = 100, .relative_noise = 0.01, .min_s = 0.004, .max_s = 1});
  stopper.add(1000);
  stopper.add(1000);
  EXPECT_FALSE(stopper.done());  // two samples
  stopper.add(1000);
  EXPECT_FALSE(stopper.done());  // 3 ms
  stopper.add(1000);
  EXPECT_EQ(stopper.why(), StopCause::quiet);
}

TEST(StopRule, NoiseGoesOnUntilSamplesOrTimeEnd) {
  Stopper noisy({.min_samples = 2, .max_samples = 10, .relative_noise = 0.01, .min_s = 0, .max_s = 100});
  while (!noisy.done()) noisy.add(noisy.samples().size() % 2 == 0 ? 100 : 200);
  EXPECT_EQ(noisy.why(), StopCause::samples);
  EXPECT_EQ(noisy.samples().size(), 10U);
  Stopper slow({.min_samples = 5, .max_samples = 10, .relative_noise = 0.01, .min_s = 0, .max_s = 1});
  slow.add(2e6);
  EXPECT_EQ(slow.why(), StopCause::time);
}

TEST(StopRule, ABrokenClockEnds) {
  for (const double us : {std::nan(""), -5.0, std::numeric_limits<double>::infinity()}) {
    Stopper stopper({.min_samples = 2, .max_samples = 6, .relative_noise = 0.01, .min_s = 0, .max_s = 1});
    while (!stopper.done()) stopper.add(us);
    EXPECT_EQ(stopper.why(), StopCause::samples);
    EXPECT_EQ(stopper.samples().size(), 6U);
  }
}

Summary timing(double median, double error) {
  Summary summary;
  summary.samples = 10;
  summary.median = median;
  summary.error = error;
  return summary;
}

TEST(Verdict, OnlyPastThreePercentAndTwoErrors) {
  EXPECT_EQ(compare(timing(97.1, 0), timing(100, 0)), Speed::tie);
  EXPECT_EQ(compare(timing(96.9, 0), timing(100, 0)), Speed::faster);
  EXPECT_EQ(compare(timing(103.1, 0), timing(100, 0)), Speed::slower);
  EXPECT_EQ(compare(timing(90, 3), timing(100, 4)), Speed::tie);  // 2 · hypot(3, 4) = 10
  EXPECT_EQ(compare(timing(89.9, 3), timing(100, 4)), Speed::faster);
}

TEST(Verdict, NothingMeasuredIsNeverFaster) {
  EXPECT_EQ(compare(Summary{}, timing(100, 0)), Speed::tie);
  EXPECT_EQ(compare(timing(1, 0), Summary{}), Speed::tie);
}

TEST(Floor, InterpolatesTimeBetweenMeasuredSizes) {
  Ceilings c;
  c.reads = {{1'000'000, 1.0}, {3'000'000, 2.0}};  // 1000 us and 1500 us
  c.bf16_tflops = 0.5;
  EXPECT_DOUBLE_EQ(read_us(c, 500'000), 500);
  EXPECT_DOUBLE_EQ(read_us(c, 1'000'000), 1000);
  EXPECT_DOUBLE_EQ(read_us(c, 2'000'000), 1250);
  EXPECT_DOUBLE_EQ(read_us(c, 6'000'000), 3000);
  const Floor memory = floor_of(c, 2e6, 1e6);
  EXPECT_EQ(memory.bound, Bound::memory);
  EXPECT_DOUBLE_EQ(memory.us, 1250);
  const Floor compute = floor_of(c, 2e6, 1e9);  // 1e9 operations at 0.5e12 a second: 2000 us
  EXPECT_EQ(compute.bound, Bound::compute);
  EXPECT_DOUBLE_EQ(compute.us, 2000);
}

TEST(Floor, WhatWasNotMeasuredBoundsNothing) {
  EXPECT_DOUBLE_EQ(read_us({}, 100), 0);
  EXPECT_DOUBLE_EQ(floor_of({}, 100, 100).us, 0);
  Ceilings c;
  c.read_gb_s = 4;
  EXPECT_DOUBLE_EQ(read_us(c, 8000), 2);  // no sizes: the one rate
  c.reads = {{1'000'000, 0.0}, {3'000'000, 2.0}};
  EXPECT_DOUBLE_EQ(read_us(c, 1'000'000), 500);  // the broken size is left out
}

}  // namespace
}  // namespace moetune
