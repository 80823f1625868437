// The search of one row. Internal to tune/.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tune/tuner.h"

namespace moetune {

/// What all rows of a run share.
struct TuneContext {
  const TuneRequest& request;
  Evaluator& evaluator;
  Store* store;  ///< may be null
  const TuneHooks& hooks;
  TuneProgress progress;
  double start_s = 0;

  [[nodiscard]] bool stopped() const { return hooks.stop != nullptr && hooks.stop->load(); }
};

class RowSearch {
 public:
  RowSearch(TuneContext& context, const Workload& workload) : context_(context) { row_.workload = workload; }

  /// The default, the other defaults, the seeds, then what the strategy proposes; until the budget, the space or the
  /// clock ends it, at `give_up_s` if the request has a time budget. Then the finalists' race.
  [[nodiscard]] Status run(const std::vector<Candidate>& seeds, double give_up_s);
  /// Looks at another row's winner if it was not looked at, and if it is better than what this row has races again.
  [[nodiscard]] Status consider(const Candidate& winner);
  [[nodiscard]] const TuneRow& row() const { return row_; }

 private:
  /// A candidate that ran, with its time in the search.
  struct Timed {
    Candidate candidate;
    Summary time;
  };

  [[nodiscard]] SearchSpace make_space() const;
  [[nodiscard]] Candidate default_of(const SearchSpace& space) const;
  [[nodiscard]] const Backend& backend(const std::string& id) const;
  [[nodiscard]] bool out_of_budget(double give_up_s) const;
  [[nodiscard]] Status search(double give_up_s);
  [[nodiscard]] Status look_at(const Candidate& candidate);
  [[nodiscard]] Result<Evaluated> outcome_of(const Candidate& candidate);
  void report();

  [[nodiscard]] std::vector<Timed> finalists() const;
  [[nodiscard]] Status judge();
  [[nodiscard]] Result<bool> race(std::vector<Timed>& finalists);
  [[nodiscard]] Result<std::vector<Outcome>> race_outcomes(const std::vector<Timed>& finalists);
  void settle(const std::vector<Timed>& finalists);
  [[nodiscard]] Status store_winner();

  TuneContext& context_;
  TuneRow row_;
  SearchSpace space_;
  std::unique_ptr<Strategy> strategy_;
  double measured_s_ = 0;  // spent on measured_ fresh evaluations
  std::int64_t measured_ = 0;
};

}  // namespace moetune
