#include <fmt/format.h>

#include "backend/measurement.h"
#include "cli/app.h"
#include "cli/session.h"
#include "report/output.h"
#include "report/table.h"

namespace moetune {
namespace {

struct BenchOptions {
  RunOptions run;
  std::string config;
};

/// The config of --config: the default with the named values changed.
Result<Config> chosen_config(const std::string& text, const Space& space, Config config) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = part.find('=');
    auto found = config.values.end();
    if (equals != std::string::npos)
      found = std::find_if(config.values.begin(), config.values.end(),
                           [&](const auto& v) { return v.first == part.substr(0, equals); });
    std::string axes;
    for (const auto& axis : space.axes) axes += (axes.empty() ? "" : ", ") + axis.name;
    if (found == config.values.end())
      return fail(fmt::format("--config: '{}' sets nothing", for_terminal(part.substr(0, 60))), {"axes: " + axes});
    const auto number = CLI::detail::lexical_cast(part.substr(equals + 1), found->second);
    if (!number)
      return fail(fmt::format("--config: '{}' is not a whole number", for_terminal(part.substr(equals + 1, 60))));
  }
  if (!space.contains(config))
    return fail(fmt::format("--config: {} is outside the space", describe(config)),
                {"moetune check MODEL --configs lists it"});
  return config;
}

/// What is run, in that order: every workload on every backend that can run the layer.
Result<std::vector<std::pair<Workload, Candidate>>> plan_of(const BenchOptions& options, const Run& run) {
  if (!options.config.empty() && run.backends.size() != 1)
    return fail(fmt::format("--config: settings of one backend, and there are {}", run.backends.size()),
                {"name one with --backends"});
  std::vector<std::pair<Workload, Candidate>> plan;
  for (const auto& workload : run.workloads)
    for (const Backend* backend : run.backends) {
      if (!backend->why_not(run.choice.problem, run.target).empty()) continue;
      MOETUNE_TRY(Config config,
                  chosen_config(options.config, backend->space(run.choice.problem, run.target, workload.tokens),
                                backend->default_config(run.choice.problem, run.target, workload.tokens)));
      plan.emplace_back(workload, Candidate{backend->id(), std::move(config)});
    }
  return plan;
}

std::string number(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "";
}

std::string bench_text(const Run& run, const std::vector<Measurement>& rows,
                       const std::vector<std::pair<std::string, Reasons>>& refused) {
  Table table({{"tokens", Table::Align::right},
               {"backend"},
               {"time", Table::Align::right},
               {"+-", Table::Align::right},
               {"GB/s", Table::Align::right},
               {"GFLOP/s", Table::Align::right},
               {"% of floor", Table::Align::right},
               {"bound"},
               {"% of peak", Table::Align::right},
               {"error", Table::Align::right},
               {"config or why not"}});
  for (const auto& row : rows) {
    const bool ok = row.us_median.has_value();
    table.row({std::to_string(row.tokens), row.backend,
               ok ? show_us(*row.us_median) : std::string(to_string(row.status)), ok ? show_us(*row.us_spread) : "",
               number(row.gb_s, 1), number(row.gflops, 1), number(row.percent_of_floor, 1),
               ok ? std::string(to_string(row.bound)) : "", number(row.percent_of_peak, 1),
               row.relative_error ? fmt::format("{:.1e}", *row.relative_error) : "",
               ok ? describe(row.config) : row.diagnosis.value_or("")});
  }
  std::string text = heading(run) + "\n" + table.str(terminal_width());
  for (const auto& [id, reasons] : refused)
    for (const auto& reason : reasons) text += fmt::format("{} cannot run: {}\n", id, describe(reason));
  return text;
}

void bench(const BenchOptions& options, Context& context) {
  auto run = prepare_run(options.run, context);
  if (!run) return report_error(context, run.error());
  const auto plan = plan_of(options, *run);
  if (!plan) return report_error(context, plan.error());
  if (const auto status = start_worker(*run); !status) return report_error(context, status.error());
  std::vector<Measurement> rows;
  std::vector<std::pair<std::string, Reasons>> refused;
  for (const Backend* backend : run->backends)
    if (auto reasons = backend->why_not(run->choice.problem, run->target); !reasons.empty())
      refused.emplace_back(backend->id(), std::move(reasons));
  for (const auto& [workload, candidate] : *plan) {
    if (context.stop.load()) break;
    const Outcome outcome = run->worker->evaluate(workload, candidate);
    rows.push_back(measurement_of(run->choice.problem, workload, candidate, outcome, run->ceilings));
  }
  if (options.run.json)
    print_json({{"target", to_json(run->target)},
                {"problem", problem_json(run->choice.problem)},
                {"weights", run->choice.weights_origin()},
                {"ceilings", to_json(run->ceilings)},
                {"results", to_json(rows)}});
  else
    print(bench_text(*run, rows, refused));
  const bool any =
      std::any_of(rows.begin(), rows.end(), [](const Measurement& row) { return row.status == OutcomeStatus::ok; });
  context.exit_code = any ? kDone : kNegative;
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  auto options = std::make_shared<BenchOptions>();
  auto* command = app.add_subcommand(
      "bench", "Every backend that can run the layer here, checked and timed side by side against the floor");
  options->run.add_to(*command);
  command->add_option(
      "--config", options->config,
      "settings instead of the default ones, e.g. threads=1,rows=64; needs --backends with one backend");
  command->footer(
      "The floor is one cold read of the bytes the touched experts occupy, or the operations over the arithmetic peak, "
      "whichever takes\n"
      "longer; both are measured in the same run. Results are compared with a reference before they are timed.\n"
      "Examples:\n"
      "  moetune bench Qwen3-30B-A3B-NVFP4 --tokens 1,4,64\n"
      "  moetune bench ./my-model --tp 8 --tokens 1-256 --json");
  command->callback([options, &context] { bench(*options, context); });
}

}  // namespace moetune
