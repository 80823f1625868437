#include "backend/measurement.h"

#include <cmath>

#include "measure/stats.h"

namespace moetune {

Measurement measurement_of(const Problem& problem, const Workload& workload, const Candidate& candidate,
                           const Outcome& outcome, const Ceilings& ceilings) {
  Measurement row;
  row.backend = candidate.backend;
  row.config = candidate.config;
  row.tokens = workload.tokens;
  row.status = outcome.status;
  if (!outcome.diagnosis.empty()) row.diagnosis = outcome.diagnosis;
  if (outcome.status != OutcomeStatus::ok) return row;
  row.active_experts = outcome.active_experts;
  // Experts and pairs are means over calls and need not be whole numbers.
  row.bytes = outcome.active_experts * static_cast<double>(expert_bytes(problem)) +
              static_cast<double>(layer_bytes(problem, workload.tokens, 0));
  row.flops = outcome.pairs * layer_flops(problem, 1);
  const Floor floor = floor_of(ceilings, row.bytes, row.flops);
  row.floor_us = floor.us;
  row.bound = floor.bound;
  row.relative_error = outcome.relative_error;
  const Summary time = summarize(outcome.samples_us);
  row.samples = time.samples;
  if (time.samples == 0) return row;
  row.us_median = time.median;
  row.us_spread = time.spread;
  row.gb_s = row.bytes / time.median * 1e-3;
  row.gflops = row.flops / time.median * 1e-3;
  row.percent_of_floor = 100 * floor.us / time.median;
  if (ceilings.bf16_tflops > 0) row.percent_of_peak = 100 * row.flops / (time.median * ceilings.bf16_tflops * 1e6);
  return row;
}

}  // namespace moetune
