#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "backend/verdict.h"
#include "cli/app.h"
#include "cli/options.h"
#include "report/output.h"
#include "report/table.h"

namespace moetune {
namespace {

struct CheckOptions {
  LayerOptions layer;
  TargetOptions target;
  bool configs = false;
  bool json = false;
};

/// What can be tuned, backend by backend, for one token.
std::string configs_text(const Registry& registry, const Problem& problem, const Target& target) {
  std::string text;
  for (const auto& backend : registry.backends()) {
    if (!backend->why_not(problem, target).empty()) continue;
    const Space space = backend->space(problem, target, 1);
    text += fmt::format("\n{}: {}\n  {} configs; default for one token: {}\n", backend->id(), backend->summary(),
                        space.all().size(), describe(backend->default_config(problem, target, 1)));
    for (const auto& axis : space.axes)
      text += fmt::format("  {:<12} {}: {}\n", axis.name, fmt::join(axis.values, " "), axis.help);
  }
  return text;
}

Result<Target> target_of(const CheckOptions& options, const Registry& registry) {
  if (options.target.gpu.empty()) return choose_target(options.target, registry);
  if (!options.target.device.empty()) return fail("--gpu and --device exclude each other");
  return find_gpu(options.target.gpu);
}

std::string check_text(const LayerChoice& choice, const Target& target, const std::vector<Verdict>& verdicts) {
  std::string text = fmt::format("{}\n  layer:  {}\n  target: {}\n", for_terminal(choice.model.geometry.model),
                                 describe(choice.problem), describe(target));
  for (const auto& assumption : choice.model.geometry.assumed) text += "  assumed: " + for_terminal(assumption) + "\n";
  Table table({{"backend"}, {"runs"}, {"known by"}, {"why"}});
  for (const auto& verdict : verdicts) {
    std::string why = verdict.note;
    for (const auto& reason : verdict.reasons) why += (why.empty() ? "" : " | ") + describe(reason);
    table.row({verdict.id,
               !verdict.runs   ? "unknown"
               : *verdict.runs ? "yes"
                               : "no",
               std::string(to_string(verdict.evidence)), why});
  }
  return text + "\n" + table.str(terminal_width());
}

void check(const CheckOptions& options, Context& context) {
  const auto choice = choose_layer(options.layer);
  if (!choice) return report_error(context, choice.error());
  const auto target = target_of(options, context.registry);
  if (!target) return report_error(context, target.error());
  const auto verdicts = check_backends(context.registry, choice->problem, *target);
  if (options.json) {
    print_json({{"target", to_json(*target)},
                {"problem", problem_json(choice->problem)},
                {"assumed", choice->model.geometry.assumed},
                {"framework", nullptr},
                {"backends", to_json(verdicts)}});
  } else {
    print(check_text(*choice, *target, verdicts));
    if (options.configs) print(configs_text(context.registry, choice->problem, *target));
  }
  const bool any =
      std::any_of(verdicts.begin(), verdicts.end(), [](const Verdict& v) { return v.runs.value_or(false); });
  context.exit_code = any ? kDone : kNegative;
}

}  // namespace

void add_check(CLI::App& app, Context& context) {
  auto options = std::make_shared<CheckOptions>();
  auto* command = app.add_subcommand(
      "check", "Which backends can run a model's layer here, and every reason why the others cannot");
  options->layer.add_to(*command);
  options->target.add_device(*command);
  options->target.add_gpu(*command);
  command->add_flag("--configs", options->configs, "also what can be tuned in each backend that runs");
  command->add_flag("--json", options->json, "one JSON object instead of a table");
  command->footer(
      "Exit code 1: no backend can run it.\n"
      "Examples:\n"
      "  moetune check GLM-5-NVFP4 --tp 8\n"
      "  moetune check ./my-model --gpu \"RTX PRO 6000\" --json");
  command->callback([options, &context] { check(*options, context); });
}

}  // namespace moetune
