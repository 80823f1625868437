#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "cli/app.h"
#include "cli/options.h"
#include "measure/stats.h"
#include "report/output.h"
#include "report/table.h"
#include "tune/store.h"

namespace moetune {
namespace {

struct ResultsOptions {
  Store::Filter filter;
  std::string status;
  std::string store;
  std::int64_t tokens = -1;
  bool json = false;
};

Json result_json(const StoredResult& result) {
  const Summary time = summarize(result.outcome.samples_us);
  return {{"id", result.id},
          {"created", result.created},
          {"target", result.target},
          {"problem", problem_json(result.problem)},
          {"tokens", result.workload.tokens},
          {"routing", to_json(result.workload.routing)},
          {"backend", result.candidate.backend},
          {"config", to_json(result.candidate.config)},
          {"revision", result.revision},
          {"status", to_json(result.outcome.status)},
          {"us_median", time.samples > 0 ? Json(time.median) : Json()},
          {"us_spread", time.samples > 0 ? Json(time.spread) : Json()},
          {"samples", time.samples},
          {"relative_error", result.outcome.relative_error},
          {"diagnosis", result.outcome.diagnosis.empty() ? Json() : Json(result.outcome.diagnosis)}};
}

void results(const ResultsOptions& options, Context& context) {
  Store::Filter filter = options.filter;
  if (options.tokens >= 0) filter.tokens = options.tokens;
  if (!options.status.empty()) {
    filter.status = parse_enum<OutcomeStatus>(options.status);
    if (!filter.status)
      return report_error(context,
                          Error{fmt::format("--status: '{}' is not known", for_terminal(options.status.substr(0, 40))),
                                {fmt::format("one of {}", fmt::join(EnumNames<OutcomeStatus>::names, ", "))}});
  }
  const std::string path = options.store.empty() ? Store::default_path() : options.store;
  std::vector<StoredResult> found;
  std::error_code problem;
  const auto file = std::filesystem::status(path, problem);
  if (file.type() != std::filesystem::file_type::not_found) {  // asking must not create one
    auto store = Store::open(path);
    if (!store) return report_error(context, store.error());
    auto listed = store->list(filter);
    if (!listed) return report_error(context, listed.error());
    found = std::move(*listed);
  }
  context.exit_code = found.empty() ? kNegative : kDone;
  if (options.json) {
    Json list = Json::array();
    for (const auto& result : found) list.push_back(result_json(result));
    return print_json({{"store", path}, {"results", list}});
  }
  if (found.empty()) return print("no results in " + path + " match\n");
  Table table({{"when"},
               {"model"},
               {"tokens", Table::Align::right},
               {"backend"},
               {"time", Table::Align::right},
               {"status"},
               {"config or why"}});
  for (const auto& result : found) {
    const Summary time = summarize(result.outcome.samples_us);
    const bool ok = result.outcome.status == OutcomeStatus::ok;
    table.row({result.created, result.model, std::to_string(result.workload.tokens), result.candidate.backend,
               ok ? show_us(time.median) : "", std::string(to_string(result.outcome.status)),
               describe(result.candidate.config) + (ok ? "" : ": " + result.outcome.diagnosis)});
  }
  print(table.str(terminal_width()));
}

}  // namespace

void add_results(CLI::App& app, Context& context) {
  auto options = std::make_shared<ResultsOptions>();
  auto* command = app.add_subcommand("results", "What earlier runs found, newest first");
  command->add_option("MODEL", options->filter.model, "part of a model's name; default: all");
  command->add_option("--backend", options->filter.backend, "only this backend");
  command->add_option("--tokens", options->tokens, "only rows of that many tokens")->check(check_count);
  command->add_option("--status", options->status,
                      "only outcomes of that kind: ok, crashed, timed_out, wrong_result, …");
  command->add_option("--limit", options->filter.limit, "rows at most")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--store", options->store, "file that keeps results; default: " + Store::default_path());
  command->add_flag("--json", options->json, "one JSON object instead of a table");
  command->footer("Exit code 1: nothing matches.\nExample: moetune results GLM-5 --tokens 16");
  command->callback([options, &context] { results(*options, context); });
}

}  // namespace moetune
