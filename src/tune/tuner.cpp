#include "tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace moetune {
namespace {

constexpr std::size_t kFinalists = 3;  // beside the default
constexpr int kPatience = 60;          // without a budget: evaluations since the last gain of kLeastGain

class RowSearch {
 public:
  RowSearch(const TuneRequest& request, Evaluator& evaluator, Store* store, const TuneHooks& hooks,
            TuneProgress& progress)
      : request_(request), evaluator_(evaluator), store_(store), hooks_(hooks), progress_(progress) {}

  Result<TuneRow> run(const Workload& workload, const std::vector<Candidate>& seeds, double give_up) {
    TuneRow row;
    row.workload = workload;
    const double start = hooks_.clock();
    SearchSpace space = make_space(workload);
    if (space.parts.empty()) return row;
    row.fallback = default_of(space, workload);
    space.seeds = seeds;
    const auto strategy =
        make_strategy(request_.strategy, std::move(space), request_.seed + static_cast<std::uint64_t>(workload.tokens));
    // The default before all else, whatever the budget.
    MOETUNE_CHECK(look_at(row, *strategy, *row.fallback));
    double gained_at = 0;
    std::optional<double> gained;
    while (!stopped(row)) {
      const auto count = static_cast<std::int64_t>(row.evaluated.size());
      const auto& best = strategy->best();
      if (best && (!gained || best->second < *gained * (1 - kLeastGain)))
        gained = best->second, gained_at = static_cast<double>(count);
      if (request_.budget_evaluations && count >= *request_.budget_evaluations) break;
      if (request_.budget_s && hooks_.clock() >= give_up) break;
      const bool open_end =
          !request_.budget_evaluations && !request_.budget_s && request_.strategy == StrategyKind::local;
      if (open_end && static_cast<double>(count) - gained_at >= kPatience) break;
      const auto candidate = strategy->next();
      if (!candidate) break;
      MOETUNE_CHECK(look_at(row, *strategy, *candidate));
    }
    judge(row);
    row.elapsed_s = hooks_.clock() - start;
    return row;
  }

 private:
  bool stopped(TuneRow& row) const {
    if (hooks_.stop == nullptr || !hooks_.stop->load()) return false;
    row.complete = false;
    return true;
  }

  SearchSpace make_space(const Workload& workload) const {
    SearchSpace space;
    const auto& [problem, target] = std::tie(request_.identity.problem, request_.identity.target);
    for (const Backend* backend : request_.backends)
      if (backend->why_not(problem, target).empty())
        space.parts.push_back({backend->id(), backend->space(problem, target, workload.tokens),
                               backend->default_config(problem, target, workload.tokens)});
    return space;
  }

  Candidate default_of(const SearchSpace& space, const Workload& workload) const {
    for (const auto& part : space.parts)
      if (backend(part.backend)->prefers(request_.identity.problem, request_.identity.target, workload.tokens))
        return {part.backend, part.first};
    return {space.parts.front().backend, space.parts.front().first};
  }

  const Backend* backend(const std::string& id) const {
    return *std::find_if(request_.backends.begin(), request_.backends.end(),
                         [&](const Backend* b) { return b->id() == id; });
  }

  Status look_at(TuneRow& row, Strategy& strategy, const Candidate& candidate) {
    Evaluated evaluated{candidate, {}, false};
    const std::string revision = backend(candidate.backend)->revision();
    if (store_ != nullptr) {
      MOETUNE_TRY(auto known, store_->find(request_.identity, row.workload, candidate, revision));
      if (known) evaluated.outcome = std::move(*known), evaluated.reused = true;
    }
    if (!evaluated.reused) {
      evaluated.outcome = evaluator_.evaluate(row.workload, candidate);
      if (store_ != nullptr)
        MOETUNE_CHECK(store_->add(request_.identity, row.workload, candidate, revision, evaluated.outcome));
    }
    if (evaluated.outcome.status == OutcomeStatus::skipped) return {};
    const bool ok = evaluated.outcome.status == OutcomeStatus::ok && !evaluated.outcome.samples_us.empty();
    strategy.tell(candidate, ok ? std::optional(summarize(evaluated.outcome.samples_us).median) : std::nullopt);
    row.evaluated.push_back(std::move(evaluated));
    report(row, strategy);
    return {};
  }

  void report(const TuneRow& row, const Strategy& strategy) const {
    if (!hooks_.progress) return;
    ++progress_.evaluated;
    progress_.workload = &row.workload;
    progress_.latest = &row.evaluated.back();
    progress_.best = strategy.best() ? &*strategy.best() : nullptr;
    hooks_.progress(progress_);
  }

  /// The default and the best few, raced; the winner is the fastest of those that beat the default, or the default.
  void judge(TuneRow& row) {
    std::vector<std::pair<double, Candidate>> ranked;
    for (const auto& evaluated : row.evaluated)
      if (evaluated.outcome.status == OutcomeStatus::ok && !evaluated.outcome.samples_us.empty())
        ranked.emplace_back(summarize(evaluated.outcome.samples_us).median, evaluated.candidate);
    if (ranked.empty()) return;
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Candidate> finalists;
    const auto is_default = [&](const auto& entry) { return entry.second == *row.fallback; };
    const bool default_runs = std::any_of(ranked.begin(), ranked.end(), is_default);
    if (default_runs) finalists.push_back(*row.fallback);
    for (const auto& entry : ranked)
      if (!is_default(entry) && finalists.size() < kFinalists + (default_runs ? 1 : 0))
        finalists.push_back(entry.second);
    std::vector<Summary> times = race(row, finalists);
    std::size_t fastest = 0;
    for (std::size_t i = 1; i < finalists.size(); ++i)
      if (times[i].samples > 0 && (times[fastest].samples == 0 || times[i].median < times[fastest].median)) fastest = i;
    if (times[fastest].samples == 0) return;
    row.winner = finalists[fastest];
    row.winner_time = times[fastest];
    if (!default_runs) {
      row.verdict = Speed::faster;  // than nothing at all
      return;
    }
    row.default_time = times.front();
    row.verdict = compare(times[fastest], times.front());
    if (row.verdict == Speed::faster) return;
    row.verdict = Speed::tie;
    row.winner = row.fallback;
    row.winner_time = row.default_time;
  }

  /// Times of the finalists from one race; from the search where there is nothing to race or the race was cut short.
  std::vector<Summary> race(const TuneRow& row, const std::vector<Candidate>& finalists) {
    std::vector<Summary> times;
    if (finalists.size() > 1 && (hooks_.stop == nullptr || !hooks_.stop->load()))
      for (const auto& outcome : evaluator_.race(row.workload, finalists))
        times.push_back(outcome.status == OutcomeStatus::ok ? summarize(outcome.samples_us) : Summary{});
    const bool complete = times.size() == finalists.size() &&
                          std::any_of(times.begin(), times.end(), [](const Summary& s) { return s.samples > 0; });
    if (complete) return times;
    times.clear();
    for (const auto& finalist : finalists)
      for (const auto& evaluated : row.evaluated)
        if (evaluated.candidate == finalist) {
          times.push_back(summarize(evaluated.outcome.samples_us));
          break;
        }
    return times;
  }

  const TuneRequest& request_;
  Evaluator& evaluator_;
  Store* store_;
  const TuneHooks& hooks_;
  TuneProgress& progress_;
};

/// Winners of the other rows, the nearest in tokens first.
std::vector<Candidate> seeds_from(const std::vector<TuneRow>& rows, const Workload& workload) {
  std::vector<std::pair<double, Candidate>> near;
  for (const auto& row : rows)
    if (row.winner)
      near.emplace_back(std::abs(std::log2(1.0 + static_cast<double>(row.workload.tokens)) -
                                 std::log2(1.0 + static_cast<double>(workload.tokens))),
                        *row.winner);
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Candidate> seeds;
  for (auto& entry : near) seeds.push_back(std::move(entry.second));
  return seeds;
}

}  // namespace

double TuneRow::gain() const {
  if (verdict != Speed::faster || winner_time.median <= 0 || default_time.median <= 0) return 1.0;
  return default_time.median / winner_time.median;
}

std::int64_t TuneRow::failed() const {
  return std::count_if(evaluated.begin(), evaluated.end(),
                       [](const Evaluated& e) { return e.outcome.status != OutcomeStatus::ok; });
}

Result<TuneReport> tune(const TuneRequest& request, Evaluator& evaluator, Store* store, const TuneHooks& hooks) {
  TuneReport report;
  TuneProgress progress;
  progress.rows = request.workloads.size();
  const double start = hooks.clock();
  const TuneHooks timed{hooks.clock,
                        hooks.progress ? [&](const TuneProgress& p) {
                          progress.elapsed_s = hooks.clock() - start;
                          hooks.progress(p);
                        } : std::function<void(const TuneProgress&)>(),
                        hooks.stop};
  RowSearch search(request, evaluator, store, timed, progress);
  for (std::size_t i = 0; i < request.workloads.size(); ++i) {
    if (hooks.stop != nullptr && hooks.stop->load()) break;
    progress.row = i;
    // What earlier rows left over is shared by the rest.
    const double now = hooks.clock();
    const double left = request.budget_s ? *request.budget_s - (now - start) : 0;
    const double give_up = now + std::max(0.0, left) / static_cast<double>(request.workloads.size() - i);
    MOETUNE_TRY(TuneRow row, search.run(request.workloads[i], seeds_from(report.rows, request.workloads[i]), give_up));
    report.rows.push_back(std::move(row));
  }
  report.elapsed_s = hooks.clock() - start;
  return report;
}

}  // namespace moetune
