#include "tune/row_search.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace moetune {
namespace {

constexpr std::size_t kFinalists = 3;     // beside the default
constexpr std::int64_t kPatience = 60;    // without a budget: evaluations since the last gain of kLeastGain
constexpr std::size_t kLogBytes = 4096;   // of a failure's log, kept in memory
constexpr double kLargestReserve = 0.25;  // of a row's time, kept for its race

bool ran(const Outcome& outcome) { return outcome.status == OutcomeStatus::ok && !outcome.samples_us.empty(); }

}  // namespace

Status RowSearch::run(const std::vector<Candidate>& seeds, double give_up_s) {
  const double start = context_.hooks.clock();
  space_ = make_space();
  if (space_.parts.empty()) return {};
  space_.seeds = seeds;
  row_.fallback = default_of(space_);
  strategy_ = make_strategy(context_.request.strategy, space_,
                            context_.request.seed + static_cast<std::uint64_t>(row_.workload.tokens));
  Status status = search(give_up_s);
  if (status) status = judge();
  row_.elapsed_s = context_.hooks.clock() - start;
  return status;
}

Status RowSearch::consider(const Candidate& winner) {
  if (!strategy_ || context_.stopped()) return {};
  const auto& limit = context_.request.budget_evaluations;
  if (limit && static_cast<std::int64_t>(row_.evaluated.size()) >= *limit) return {};
  const auto candidate = nearest_candidate(space_, winner);
  if (!candidate) return {};
  const auto same = [&](const Evaluated& evaluated) { return evaluated.candidate == *candidate; };
  if (std::any_of(row_.evaluated.begin(), row_.evaluated.end(), same)) return {};
  const double start = context_.hooks.clock();
  const std::optional<double> before = strategy_->best() ? std::optional(strategy_->best()->second) : std::nullopt;
  Status status = look_at(*candidate);
  const auto& best = strategy_->best();
  if (status && best && (!before || best->second < *before)) status = judge();
  row_.elapsed_s += context_.hooks.clock() - start;
  return status;
}

SearchSpace RowSearch::make_space() const {
  const auto& [problem, target] = std::tie(context_.request.identity.problem, context_.request.identity.target);
  const std::int64_t tokens = row_.workload.tokens;
  SearchSpace space;
  for (const Backend* candidate : context_.request.backends)
    if (candidate->why_not(problem, target).empty())
      space.parts.push_back({candidate->id(), candidate->space(problem, target, tokens),
                             candidate->default_config(problem, target, tokens)});
  return space;
}

Candidate RowSearch::default_of(const SearchSpace& space) const {
  const auto& identity = context_.request.identity;
  const auto preferred = std::find_if(space.parts.begin(), space.parts.end(), [&](const auto& part) {
    return backend(part.backend).prefers(identity.problem, identity.target, row_.workload.tokens);
  });
  const auto& part = preferred == space.parts.end() ? space.parts.front() : *preferred;
  return {part.backend, part.first};
}

const Backend& RowSearch::backend(const std::string& id) const {
  const auto& backends = context_.request.backends;
  return **std::find_if(backends.begin(), backends.end(), [&](const Backend* b) { return b->id() == id; });
}

Status RowSearch::search(double give_up_s) {
  MOETUNE_CHECK(look_at(*row_.fallback));
  const bool patient = context_.request.budget_evaluations || context_.request.budget_s ||
                       context_.request.strategy != StrategyKind::local;
  std::optional<double> gained;  // the best when it last was better by kLeastGain …
  std::size_t gained_at = 0;     // … after this many evaluations
  while (!out_of_budget(give_up_s)) {
    if (context_.stopped()) {
      row_.complete = false;
      return {};
    }
    const auto& best = strategy_->best();
    if (best && (!gained || best->second < *gained * (1 - kLeastGain))) {
      gained = best->second;
      gained_at = row_.evaluated.size();
    }
    if (!patient && static_cast<std::int64_t>(row_.evaluated.size() - gained_at) >= kPatience) return {};
    const auto candidate = strategy_->next();
    if (!candidate) {
      row_.exhausted = true;
      return {};
    }
    MOETUNE_CHECK(look_at(*candidate));
  }
  return {};
}

bool RowSearch::out_of_budget(double give_up_s) const {
  const auto& request = context_.request;
  if (request.budget_evaluations && static_cast<std::int64_t>(row_.evaluated.size()) >= *request.budget_evaluations)
    return true;
  if (!request.budget_s) return false;
  // The race takes about as long as evaluating every finalist once more.
  const double each = measured_ > 0 ? measured_s_ / static_cast<double>(measured_) : 0;
  const double share = *request.budget_s / static_cast<double>(request.workloads.size());
  const double reserve = std::min(each * static_cast<double>(kFinalists + 1), kLargestReserve * share);
  return context_.hooks.clock() + reserve >= give_up_s;
}

Status RowSearch::look_at(const Candidate& candidate) {
  MOETUNE_TRY(Evaluated evaluated, outcome_of(candidate));
  if (evaluated.outcome.status == OutcomeStatus::skipped) return {};
  auto& log = evaluated.outcome.log;
  if (log.size() > kLogBytes) log.erase(0, log.size() - kLogBytes);
  const bool ok = ran(evaluated.outcome);
  strategy_->tell(candidate, ok ? std::optional(summarize(evaluated.outcome.samples_us).median) : std::nullopt);
  row_.evaluated.push_back(std::move(evaluated));
  report();
  return {};
}

Result<Evaluated> RowSearch::outcome_of(const Candidate& candidate) {
  const auto& request = context_.request;
  const std::string revision = backend(candidate.backend).revision();
  if (context_.store != nullptr) {
    MOETUNE_TRY(auto known, context_.store->find(request.identity, row_.workload, candidate, revision));
    if (known && (known->status == OutcomeStatus::ok || !request.retry_failed))
      return Evaluated{candidate, std::move(*known), true};
  }
  const double start = context_.hooks.clock();
  Evaluated evaluated{candidate, context_.evaluator.evaluate(row_.workload, candidate), false};
  measured_s_ += context_.hooks.clock() - start;
  ++measured_;
  if (context_.store != nullptr)
    MOETUNE_CHECK(context_.store->add(request.identity, row_.workload, candidate, revision, evaluated.outcome));
  return evaluated;
}

void RowSearch::report() {
  auto& progress = context_.progress;
  ++progress.evaluated;
  if (!context_.hooks.progress) return;
  progress.workload = &row_.workload;
  progress.latest = &row_.evaluated.back();
  progress.best = strategy_->best() ? &*strategy_->best() : nullptr;
  progress.elapsed_s = context_.hooks.clock() - context_.start_s;
  context_.hooks.progress(progress);
}

/// The default if it ran, then the best few others.
std::vector<RowSearch::Timed> RowSearch::finalists() const {
  std::vector<Timed> ranked;
  for (const auto& evaluated : row_.evaluated)
    if (ran(evaluated.outcome)) ranked.push_back({evaluated.candidate, summarize(evaluated.outcome.samples_us)});
  std::erase_if(ranked, [](const Timed& timed) { return timed.time.samples == 0; });
  const auto is_default = [&](const Timed& timed) { return timed.candidate == *row_.fallback; };
  std::stable_sort(ranked.begin(), ranked.end(), [&](const Timed& a, const Timed& b) {
    return is_default(a) != is_default(b) ? is_default(a) : a.time.median < b.time.median;
  });
  const std::size_t most = kFinalists + (!ranked.empty() && is_default(ranked.front()) ? 1 : 0);
  if (ranked.size() > most) ranked.resize(most);
  return ranked;
}

Status RowSearch::judge() {
  std::vector<Timed> last = finalists();
  if (last.empty()) return {};
  row_.raced = false;
  if (last.size() > 1 && !context_.stopped()) {
    MOETUNE_TRY(row_.raced, race(last));
  }
  settle(last);
  return store_winner();
}

/// Replaces the finalists' times by those of a race and drops who failed in it. Where the race told nothing, as when
/// one of them took the others down, the default is raced against one after the other. False: no race told anything,
/// and the finalists are as they were.
Result<bool> RowSearch::race(std::vector<Timed>& finalists) {
  const auto raced = [&](std::vector<Timed> field) -> Result<std::vector<Timed>> {
    MOETUNE_TRY(const auto outcomes, race_outcomes(field));
    for (std::size_t i = 0; i < field.size(); ++i)
      field[i].time = i < outcomes.size() && ran(outcomes[i]) ? summarize(outcomes[i].samples_us) : Summary{};
    std::erase_if(field, [](const Timed& timed) { return timed.time.samples == 0; });
    return field;
  };
  MOETUNE_TRY(auto left, raced(finalists));
  for (std::size_t i = 1; i < finalists.size() && finalists.size() > 2 && left.empty() && !context_.stopped(); ++i) {
    MOETUNE_TRY(left, raced({finalists.front(), finalists[i]}));
  }
  if (left.empty()) return false;
  finalists = std::move(left);
  return true;
}

Result<std::vector<Outcome>> RowSearch::race_outcomes(const std::vector<Timed>& finalists) {
  const auto& identity = context_.request.identity;
  std::vector<Finalist> entries;
  std::vector<Candidate> candidates;
  for (const auto& finalist : finalists) {
    entries.push_back({finalist.candidate, backend(finalist.candidate.backend).revision()});
    candidates.push_back(finalist.candidate);
  }
  if (context_.store != nullptr) {
    MOETUNE_TRY(auto known, context_.store->find_race(identity, row_.workload, entries));
    if (known) return std::move(*known);
  }
  auto outcomes = context_.evaluator.race(row_.workload, candidates);
  const bool whole = outcomes.size() == candidates.size() && std::all_of(outcomes.begin(), outcomes.end(), ran);
  if (whole && context_.store != nullptr)
    MOETUNE_CHECK(context_.store->add_race(identity, row_.workload, entries, outcomes));
  return outcomes;
}

/// The winner: the fastest if it beats the default or the default does not run, else the default.
void RowSearch::settle(const std::vector<Timed>& finalists) {
  const auto fastest = std::min_element(finalists.begin(), finalists.end(),
                                        [](const Timed& a, const Timed& b) { return a.time.median < b.time.median; });
  row_.winner = fastest->candidate;
  row_.winner_time = fastest->time;
  row_.default_time = {};
  row_.verdict = Speed::faster;  // than nothing at all
  if (!(finalists.front().candidate == *row_.fallback)) return;
  row_.default_time = finalists.front().time;
  if (compare(fastest->time, row_.default_time) == Speed::faster) return;
  row_.verdict = Speed::tie;
  row_.winner = row_.fallback;
  row_.winner_time = row_.default_time;
}

Status RowSearch::store_winner() {
  if (context_.store == nullptr) return {};
  StoredWinner stored;
  stored.workload = row_.workload;
  stored.winner = *row_.winner;
  stored.revision = backend(row_.winner->backend).revision();
  stored.fallback = *row_.fallback;
  stored.verdict = row_.verdict;
  stored.us_median = row_.winner_time.median;
  if (row_.default_time.samples > 0) stored.default_us = row_.default_time.median;
  return context_.store->add_winner(context_.request.identity, stored);
}

}  // namespace moetune
