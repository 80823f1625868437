// The search: rows of tokens, candidates, what was found.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
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
  bool retry_failed = false;  ///< measure again what is stored as a failure
};

/// One candidate that was looked at.
struct Evaluated {
  Candidate candidate;
  Outcome outcome;      ///< of its log only the end; the store has all of it
  bool reused = false;  ///< from the store
};

struct TuneRow {
  Workload workload;
  std::optional<Candidate> winner;    ///< nothing: no candidate ran
  std::optional<Candidate> fallback;  ///< the default: what runs without tuning; nothing: no backend can run the layer
  Summary winner_time, default_time;
  Speed verdict = Speed::tie;
  bool raced = false;      ///< the times are of one race; false: of the search, taken one after another
  bool complete = true;    ///< false: stopped by Ctrl-C
  bool exhausted = false;  ///< every candidate there is was looked at
  std::vector<Evaluated> evaluated;
  double elapsed_s = 0;

  /// default_time over winner_time, 1 for a tie.
  [[nodiscard]] double gain() const;
  [[nodiscard]] std::int64_t failed() const;
  [[nodiscard]] std::int64_t reused() const;
};

struct TuneReport {
  std::vector<TuneRow> rows;  ///< in the order of the request; those that were not reached before a stop are left out
  double elapsed_s = 0;

  [[nodiscard]] std::int64_t evaluated() const;  ///< of which
  [[nodiscard]] std::int64_t failed() const;
  [[nodiscard]] std::int64_t reused() const;
};

/// What is going on, for a progress line.
struct TuneProgress {
  std::size_t row = 0, rows = 0;  ///< how many rows were begun before this one, of how many
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

/// Searches every row, the one with the fewest tokens first, so that neighbouring rows seed each other: a row starts
/// from the winners of those before it, and at the end each is offered the winner of the one after it.
///
/// The default of a row is the default config of the first backend that can run it and prefers that many tokens
/// (Backend::prefers). It is evaluated first whatever the budget, then every other backend's default. At the end it is
/// raced against the best few (Evaluator::race): the best of many noisy timings is too good to be true, so the search's
/// own numbers choose the finalists only. The default keeps its place unless one is faster by more than the noise.
///
/// A failed candidate is a row like any other. Outcomes are stored as they arrive, and neither stored outcomes nor
/// stored races are measured again. Without a budget a local search ends after 60 evaluations that gained nothing.
/// Errors: the store's only.
[[nodiscard]] Result<TuneReport> tune(const TuneRequest& request, Evaluator& evaluator, Store* store,
                                      const TuneHooks& hooks);

}  // namespace moetune
