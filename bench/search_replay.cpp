// How good are the search strategies? Replays recorded exhaustive searches (see tune/recording.h) and says, for each
// row and strategy, how near the best found comes to the best there is after a given part of the evaluations.
//
//   search_replay bench/results/cpu_zen3/exhaustive.json [--searches 200] [--json]
//
// A recording is made with `moetune tune MODEL --strategy exhaustive --budget 24h --record FILE`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/json.h"
#include "measure/stats.h"
#include "tune/recording.h"

namespace moetune {
namespace {

constexpr std::array kParts = {0.02, 0.05, 0.10, 0.15, 0.25, 0.50};
constexpr double kGoodEnough = 0.97;

/// One line of the table: a strategy on a row with a part of the evaluations.
struct Score {
  std::int64_t tokens = 0;
  std::string strategy;
  double part = 0;  ///< of the candidates
  std::int64_t evaluations = 0;
  double median = 0, tenth = 0;  ///< of best of all / best found, over the searches: median and 10th percentile
  double good_enough = 0;        ///< part of the searches that found kGoodEnough of the best

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("tokens", self.tokens);
    visit("strategy", self.strategy);
    visit("part", self.part);
    visit("evaluations", self.evaluations);
    visit("median", self.median);
    visit("tenth_percentile", self.tenth);
    visit("good_enough", self.good_enough);
  }
};

std::vector<Score> scores_of(const RecordedRow& row, StrategyKind kind, std::uint64_t searches) {
  const auto count = static_cast<double>(candidates(row));
  const double best = best_us(row);
  std::array<std::vector<double>, kParts.size()> ratios;
  const auto evaluations = [&](double part) { return static_cast<std::size_t>(std::max(1.0, part * count)); };
  for (std::uint64_t seed = 1; seed <= searches; ++seed) {
    const auto found = replay(row, kind, seed, evaluations(kParts.back()));
    for (std::size_t p = 0; p < kParts.size(); ++p) ratios[p].push_back(best / found[evaluations(kParts[p]) - 1]);
  }
  std::vector<Score> scores;
  for (std::size_t p = 0; p < kParts.size(); ++p) {
    const auto good = std::count_if(ratios[p].begin(), ratios[p].end(), [](double r) { return r >= kGoodEnough; });
    scores.push_back({row.workload.tokens, std::string(to_string(kind)), kParts[p],
                      static_cast<std::int64_t>(evaluations(kParts[p])), median(ratios[p]), quantile(ratios[p], 0.1),
                      static_cast<double>(good) / static_cast<double>(searches)});
  }
  return scores;
}

void print_row(const RecordedRow& row, const std::vector<Score>& scores) {
  std::size_t failed = 0;
  for (const auto& part : row.parts)
    failed += static_cast<std::size_t>(std::count_if(part.outcomes.begin(), part.outcomes.end(),
                                                     [](const auto& o) { return o.status != OutcomeStatus::ok; }));
  fmt::print("{} tokens: {} candidates of {} backends, {} failed{}, best {:.1f} us\n", row.workload.tokens,
             candidates(row), row.parts.size(), failed, row.exhaustive ? "" : ", not exhaustive", best_us(row));
  fmt::print("  {:<12} {:>6} {:>12} {:>8} {:>8} {:>8}\n", "strategy", "part", "evaluations", "median", "p10",
             ">= 97 %");
  for (const auto& score : scores)
    fmt::print("  {:<12} {:>5.0f}% {:>12} {:>8.3f} {:>8.3f} {:>7.1f}%\n", score.strategy, 100 * score.part,
               score.evaluations, score.median, score.tenth, 100 * score.good_enough);
}

int replay_main(int argc, char** argv) {
  std::string path;
  std::uint64_t searches = 200;
  bool json = false;
  CLI::App app{"How near search strategies come to the best of a recorded exhaustive search"};
  app.add_option("RECORDING", path, "file made by `moetune tune --strategy exhaustive --record FILE`")->required();
  app.add_option("--searches", searches, "replays of each strategy, each with its own seed")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_flag("--json", json, "one JSON object instead of tables");
  CLI11_PARSE(app, argc, argv);
  const auto recording = read_recording(path);
  if (!recording) {
    fmt::print(stderr, "search_replay: error: {}\n", recording.error().what);
    for (const auto& hint : recording.error().hints) fmt::print(stderr, "  {}\n", hint);
    return 2;
  }
  std::vector<Score> all;
  for (const auto& row : recording->rows) {
    std::vector<Score> scores;
    for (const auto kind : {StrategyKind::exhaustive, StrategyKind::random, StrategyKind::local})
      for (auto& score : scores_of(row, kind, kind == StrategyKind::exhaustive ? 1 : searches)) scores.push_back(score);
    if (!json) print_row(row, scores);
    all.insert(all.end(), scores.begin(), scores.end());
  }
  if (json) fmt::print("{}\n", dump_json({{"recording", path}, {"searches", searches}, {"scores", to_json(all)}}));
  return 0;
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) { return moetune::replay_main(argc, argv); }
