#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "backend/measurement.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/app.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "report/output.h"
#include "report/table.h"
#include "tune/recording.h"
#include "tune/tuner.h"

namespace moetune {
namespace {

struct TuneOptions {
  RunOptions run;
  std::string budget = "10m";
  std::string strategy = "local";
  std::string record;
};

Result<TuneRequest> request_of(const TuneOptions& options, const Run& run) {
  MOETUNE_TRY(const Budget budget, parse_budget(options.budget));
  const auto strategy = parse_enum<StrategyKind>(options.strategy);
  if (!strategy)
    return fail(fmt::format("--strategy: '{}' is not known", for_terminal(options.strategy.substr(0, 40))),
                {fmt::format("one of {}", fmt::join(EnumNames<StrategyKind>::names, ", "))});
  TuneRequest request;
  request.identity = run.identity;
  request.backends = run.backends;
  request.workloads = run.workloads;
  request.strategy = *strategy;
  request.budget_s = budget.seconds;
  request.budget_evaluations = budget.evaluations;
  request.seed = run.choice.seed;
  return request;
}

/// The measurement of a row's winner, with the bytes and operations its evaluation counted.
Measurement winner_measurement(const Run& run, const TuneRow& row) {
  for (const auto& evaluated : row.evaluated)
    if (row.winner && evaluated.candidate == *row.winner) {
      Outcome outcome = evaluated.outcome;
      outcome.samples_us = {row.winner_time.median};
      return measurement_of(run.choice.problem, row.workload, *row.winner, outcome, run.ceilings);
    }
  return {};
}

std::map<OutcomeStatus, std::int64_t> failures_of(const TuneReport& report) {
  std::map<OutcomeStatus, std::int64_t> counts;
  for (const auto& row : report.rows)
    for (const auto& evaluated : row.evaluated)
      if (evaluated.outcome.status != OutcomeStatus::ok) ++counts[evaluated.outcome.status];
  return counts;
}

std::string failures_text(const TuneReport& report) {
  std::string text;
  for (const auto& row : report.rows)
    for (const auto& evaluated : row.evaluated)
      if (evaluated.outcome.status != OutcomeStatus::ok)
        text += fmt::format("  {} tokens, {} {}: {}: {}\n", row.workload.tokens, evaluated.candidate.backend,
                            describe(evaluated.candidate.config), to_string(evaluated.outcome.status),
                            for_terminal(evaluated.outcome.diagnosis));
  return text.empty() ? "" : "failed candidates:\n" + text;
}

std::string tune_text(const Run& run, const TuneReport& report) {
  Table table({{"tokens", Table::Align::right},
               {"winner"},
               {"time", Table::Align::right},
               {"default", Table::Align::right},
               {"gain", Table::Align::right},
               {"verdict"},
               {"% of floor", Table::Align::right},
               {"tried", Table::Align::right},
               {"failed", Table::Align::right},
               {"config"}});
  for (const auto& row : report.rows) {
    if (!row.winner) {
      table.row({std::to_string(row.workload.tokens), "none", "", "", "", "no candidate ran", "",
                 std::to_string(row.evaluated.size()), std::to_string(row.failed()), ""});
      continue;
    }
    const Measurement measured = winner_measurement(run, row);
    table.row({std::to_string(row.workload.tokens), row.winner->backend, show_us(row.winner_time.median),
               row.default_time.samples > 0 ? show_us(row.default_time.median) : "failed",
               fmt::format("{:.2f}x", row.gain()),
               std::string(to_string(row.verdict)) + (row.complete ? "" : " (cut short)"),
               measured.percent_of_floor ? fmt::format("{:.1f}", *measured.percent_of_floor) : "",
               std::to_string(row.evaluated.size()), std::to_string(row.failed()), describe(row.winner->config)});
  }
  std::int64_t evaluated = 0, reused = 0;
  for (const auto& row : report.rows)
    for (const auto& one : row.evaluated) ++evaluated, reused += one.reused ? 1 : 0;
  return heading(run) + "\n" + table.str(terminal_width()) + failures_text(report) +
         fmt::format("{} candidates in {}, {} of them from the store\n", evaluated, show_seconds(report.elapsed_s),
                     reused);
}

Json tune_json(const Run& run, const TuneReport& report, const std::string& store) {
  Json winners = Json::array(), failures = Json::object();
  std::int64_t evaluated = 0, failed = 0, reused = 0;
  for (const auto& row : report.rows) {
    evaluated += static_cast<std::int64_t>(row.evaluated.size());
    failed += row.failed();
    for (const auto& one : row.evaluated) reused += one.reused ? 1 : 0;
    const Measurement measured = winner_measurement(run, row);
    const bool won = row.winner.has_value();
    winners.push_back({{"tokens", row.workload.tokens},
                       {"backend", won ? Json(row.winner->backend) : Json()},
                       {"config", won ? to_json(row.winner->config) : Json()},
                       {"us_median", won ? Json(row.winner_time.median) : Json()},
                       {"default_us", row.default_time.samples > 0 ? Json(row.default_time.median) : Json()},
                       {"gain", won ? Json(row.gain()) : Json()},
                       {"verdict", won ? to_json(row.verdict) : Json()},
                       {"floor_us", won ? Json(measured.floor_us) : Json()},
                       {"percent_of_floor", to_json(measured.percent_of_floor)},
                       {"complete", row.complete},
                       {"evaluated", row.evaluated.size()},
                       {"failed", row.failed()}});
  }
  for (const auto& [status, count] : failures_of(report)) failures[std::string(to_string(status))] = count;
  return {{"target", to_json(run.target)},
          {"problem", problem_json(run.choice.problem)},
          {"weights", run.choice.weights_origin()},
          {"ceilings", to_json(run.ceilings)},
          {"winners", winners},
          {"evaluated", evaluated},
          {"reused", reused},
          {"failed", failed},
          {"failures", failures},
          {"elapsed_s", report.elapsed_s},
          {"store", store}};
}

void tune_command(const TuneOptions& options, Context& context) {
  auto run = prepare_run(options.run, context);
  if (!run) return report_error(context, run.error());
  const auto request = request_of(options, *run);
  if (!request) return report_error(context, request.error());
  if (!options.record.empty())  // not found out after the run
    if (const auto status = write_file(options.record, ""); !status) return report_error(context, status.error());
  if (const auto status = start_worker(*run); !status) return report_error(context, status.error());
  Progress progress;
  const TuneHooks hooks{now_s, [&](const TuneProgress& p) { progress.show(progress_text(p, request->budget_s)); },
                        &context.stop};
  const auto report = tune(*request, *run->worker, &*run->store, hooks);
  progress.finish();
  if (!report) return report_error(context, report.error());
  if (!options.record.empty())
    if (const auto status = write_file(options.record, dump_json(to_json(record(*request, *report)))); !status)
      return report_error(context, status.error());
  if (options.run.json)
    print_json(tune_json(*run, *report, options.run.store.empty() ? Store::default_path() : options.run.store));
  else
    print(tune_text(*run, *report));
  const bool any =
      std::any_of(report->rows.begin(), report->rows.end(), [](const TuneRow& row) { return row.winner.has_value(); });
  context.exit_code = any ? kDone : kNegative;
}

}  // namespace

void add_tune(CLI::App& app, Context& context) {
  auto options = std::make_shared<TuneOptions>();
  auto* command = app.add_subcommand(
      "tune", "Searches the settings of every backend that can run the layer here, and keeps what it finds");
  options->run.add_to(*command);
  command->add_option("--budget", options->budget, "time for the whole run (90s, 10m, 1h) or evaluations a row (200)")
      ->capture_default_str();
  command->add_option("--strategy", options->strategy, "local, random or exhaustive")->capture_default_str();
  command->add_option("--record", options->record,
                      "also write everything looked at to this file, for bench/search_replay");
  command->footer(
      "The default settings are always tried, and stay unless something beats them by more than the noise (at least 3 "
      "%); then the verdict is\n"
      "'faster', else 'tie'. A candidate that crashes, hangs or answers wrongly is a row with a reason, not the end. "
      "Results are kept as they\n"
      "arrive: a run that is stopped, even killed, goes on from there when it is started again. Ctrl-C ends with what "
      "was found.\n"
      "Examples:\n"
      "  moetune tune Qwen3-30B-A3B-NVFP4\n"
      "  moetune tune GLM-5-NVFP4 --tp 8 --tokens 1,16,64 --budget 5m\n"
      "  moetune tune ./my-model --budget 100 --json");
  command->callback([options, &context] { tune_command(*options, context); });
}

}  // namespace moetune
