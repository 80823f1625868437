#include "tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "tune/row_search.h"

namespace moetune {
namespace {

constexpr double kPassShare = 0.05;  // of the time, for offering rows the winners of those after them

/// How far apart two rows are: the factor between their tokens, as a logarithm that knows 0.
double distance(const Workload& a, const Workload& b) {
  return std::abs(std::log2(1.0 + static_cast<double>(a.tokens)) - std::log2(1.0 + static_cast<double>(b.tokens)));
}

/// Winners of the rows so far, the nearest in tokens first.
std::vector<Candidate> seeds_from(const std::vector<std::unique_ptr<RowSearch>>& rows, const Workload& workload) {
  std::vector<const TuneRow*> near;
  for (const auto& row : rows)
    if (row->row().winner) near.push_back(&row->row());
  std::stable_sort(near.begin(), near.end(), [&](const TuneRow* a, const TuneRow* b) {
    return distance(a->workload, workload) < distance(b->workload, workload);
  });
  std::vector<Candidate> seeds;
  for (const TuneRow* row : near) seeds.push_back(*row->winner);
  return seeds;
}

template <class Count>
std::int64_t sum(const std::vector<TuneRow>& rows, Count count) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0},
                         [&](std::int64_t total, const TuneRow& row) { return total + count(row); });
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

std::int64_t TuneRow::reused() const {
  return std::count_if(evaluated.begin(), evaluated.end(), [](const Evaluated& e) { return e.reused; });
}

std::int64_t TuneReport::evaluated() const {
  return sum(rows, [](const TuneRow& row) { return static_cast<std::int64_t>(row.evaluated.size()); });
}
std::int64_t TuneReport::failed() const {
  return sum(rows, [](const TuneRow& row) { return row.failed(); });
}
std::int64_t TuneReport::reused() const {
  return sum(rows, [](const TuneRow& row) { return row.reused(); });
}

Result<TuneReport> tune(const TuneRequest& request, Evaluator& evaluator, Store* store, const TuneHooks& hooks) {
  TuneContext context{request, evaluator, store, hooks, {}, hooks.clock()};
  const std::size_t count = request.workloads.size();
  context.progress.rows = count;
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return request.workloads[a].tokens < request.workloads[b].tokens;
  });
  std::vector<std::unique_ptr<RowSearch>> searches;
  const auto left_s = [&] { return request.budget_s ? *request.budget_s - (hooks.clock() - context.start_s) : 0; };
  const double kept_s = count > 1 ? kPassShare * request.budget_s.value_or(0) : 0;
  while (searches.size() < count && !context.stopped()) {
    context.progress.row = searches.size();
    const Workload& workload = request.workloads[order[searches.size()]];
    // What earlier rows left over is shared by the rest.
    const double share = std::max(0.0, left_s() - kept_s) / static_cast<double>(count - searches.size());
    const auto seeds = seeds_from(searches, workload);
    auto& search = searches.emplace_back(std::make_unique<RowSearch>(context, workload));
    MOETUNE_CHECK(search->run(seeds, hooks.clock() + share));
  }
  for (std::size_t i = searches.size(); i-- > 1 && !context.stopped() && !(request.budget_s && left_s() <= 0);)
    if (const auto& winner = searches[i]->row().winner) MOETUNE_CHECK(searches[i - 1]->consider(*winner));
  TuneReport report;
  for (std::size_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::size_t>(std::find(order.begin(), order.end(), i) - order.begin());
    if (place < searches.size()) report.rows.push_back(searches[place]->row());
  }
  report.elapsed_s = hooks.clock() - context.start_s;
  return report;
}

}  // namespace moetune
