// One row of a benchmark: an outcome held against what physics allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/evaluator.h"
#include "measure/floor.h"
#include "model/problem.h"

namespace moetune {

struct Measurement {
  std::string backend;
  Config config;
  std::int64_t tokens = 0;
  double active_experts = 0;  ///< distinct experts a call touches, mean over the timed calls
  OutcomeStatus status = OutcomeStatus::ok;
  std::optional<double> us_median, us_spread;
  double bytes = 0;  ///< least bytes a call moves: touched experts, input and output once
  double flops = 0;  ///< of the projections
  std::optional<double> gb_s, gflops;
  double floor_us = 0;  ///< see measure/floor.h
  Bound bound = Bound::memory;
  std::optional<double> percent_of_floor, percent_of_peak;  ///< of the floor; of the arithmetic peak
  std::optional<double> relative_error;
  std::int64_t samples = 0;
  std::optional<std::string> diagnosis;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("backend", self.backend);
    visit("config", self.config);
    visit("tokens", self.tokens);
    visit("active_experts", self.active_experts);
    visit("status", self.status);
    visit("us_median", self.us_median);
    visit("us_spread", self.us_spread);
    visit("bytes", self.bytes);
    visit("flops", self.flops);
    visit("gb_s", self.gb_s);
    visit("gflops", self.gflops);
    visit("floor_us", self.floor_us);
    visit("bound", self.bound);
    visit("percent_of_floor", self.percent_of_floor);
    visit("percent_of_peak", self.percent_of_peak);
    visit("relative_error", self.relative_error);
    visit("samples", self.samples);
    visit("diagnosis", self.diagnosis);
  }
};

/// Bytes and operations are those of the calls that were timed, as the outcome says; ceilings are of the same run.
[[nodiscard]] Measurement measurement_of(const Problem& problem, const Workload& workload, const Candidate& candidate,
                                         const Outcome& outcome, const Ceilings& ceilings);

}  // namespace moetune
