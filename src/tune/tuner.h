// The search: rows of tokens, candidates, what was found.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/evaluator.h"
#include "measure/stats.h"
#include "measure/verdict.h"
#include "tune/store.h"
#include "tune/strategy.h"

namespace moetune {

struct TuneRequest {
  Identity identity;
  std::vector<const Backend*> backends;  ///< those to search, in the order of registration; why_not is asked here
  std::vector<Workload> workloads;       ///< one row each
  StrategyKind strategy = StrategyKind::local;
  std::optional<double> budget_s;                  ///< of the whole run, shared evenly by the rows
  std::optional<std::int64_t> budget_evaluations;  ///< of each row; stored results count as well
  std::uint64_t seed = 1;
};

/// One candidate that was looked at.
struct Evaluated {
  Candidate candidate;
  Outcome outcome;
  bool reused = false;  ///< from the store
};

struct TuneRow {
  Workload workload;
  std::optional<Candidate> winner;    ///< nothing: no candidate ran
  std::optional<Candidate> fallback;  ///< the default: what runs without tuning
  Summary winner_time, default_time;
  Speed verdict = Speed::tie;
  bool complete = true;  ///< false: stopped by Ctrl-C
  std::vector<Evaluated> evaluated;
  double elapsed_s = 0;

  /// default_time over winner_time, 1 for a tie.
  [[nodiscard]] double gain() const;
  [[nodiscard]] std::int64_t failed() const;
};

struct TuneReport {
  std::vector<TuneRow> rows;
  double elapsed_s = 0;
};

/// What is going on, for a progress line.
struct TuneProgress {
  std::size_t row = 0, rows = 0;
  std::int64_t evaluated = 0;
  const Workload* workload = nullptr;
  const Evaluated* latest = nullptr;
  const std::pair<Candidate, double>* best = nullptr;  ///< candidate and median in us
  double elapsed_s = 0;
};

struct TuneHooks {
  std::function<double()> clock;                      ///< seconds
  std::function<void(const TuneProgress&)> progress;  ///< may be empty
  const std::atomic<bool>* stop = nullptr;            ///< set: finish with what there is
};

/// Searches every row. The default of a row is the default config of the first backend that can run it and prefers that
/// many tokens (Backend::prefers); it is evaluated first and raced against the best few at the end, and keeps its place
/// unless one is faster by more than the noise. Outcomes are stored as they arrive; stored ones are not measured again.
/// Rows seed each other. Errors: the store's only.
[[nodiscard]] Result<TuneReport> tune(const TuneRequest& request, Evaluator& evaluator, Store* store,
                                      const TuneHooks& hooks);

}  // namespace moetune
