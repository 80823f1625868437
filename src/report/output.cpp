#include "report/output.h"

#include <fmt/format.h>

#include "report/table.h"

namespace moetune {

Json envelope(const Json& fields) {
  Json object;
  object["moetune"] = {{"version", MOETUNE_VERSION}, {"schema", kOutputSchema}};
  object.update(fields);
  return object;
}

Json problem_json(const Problem& problem) {
  Json object;
  object["model"] = problem.model;
  object["experts"] = problem.experts;
  object["experts_global"] = problem.experts_global;
  object["top_k"] = problem.top_k;
  object["hidden"] = problem.hidden;
  object["intermediate"] = problem.intermediate;
  object["tp"] = problem.tp;
  object["ep"] = problem.ep;
  object["weight_format"] = to_string(problem.weights.format);
  object["weight_block"] = {problem.weights.block_n, problem.weights.block_k};
  object["activation_format"] = to_string(problem.activations);
  object["activation"] = to_string(problem.activation.kind);
  object["gated"] = problem.gated;
  object["bias"] = problem.bias;
  object["router"] = to_json(problem.router);
  return object;
}

std::string describe(const Problem& problem) {
  std::string text = fmt::format("{} experts", problem.experts);
  if (problem.experts != problem.experts_global) text += fmt::format(" of {}", problem.experts_global);
  text += fmt::format(", top-{}, hidden {}, intermediate {}, {} weights, {}{}", problem.top_k, problem.hidden,
                      problem.intermediate, describe(problem.weights), to_string(problem.activation.kind),
                      problem.gated ? "" : " without a gate");
  if (problem.tp > 1) text += fmt::format(", TP {}", problem.tp);
  if (problem.ep > 1) text += fmt::format(", EP {}", problem.ep);
  return text;
}

std::string describe(const Target& target) {
  std::string text = target.name;
  std::string inner;
  const auto add = [&](const std::string& part) { inner += (inner.empty() ? "" : ", ") + part; };
  if (target.compute_capability) add("compute capability " + *target.compute_capability);
  if (target.simd) add(*target.simd);
  if (target.cores) add(fmt::format("{} {}", *target.cores, target.kind == TargetKind::cpu ? "cores" : "SMs"));
  if (target.l3_bytes) add(fmt::format("{} MiB L3", *target.l3_bytes >> 20));
  if (target.memory_bytes) add(show_bytes(static_cast<double>(*target.memory_bytes)) + " memory");
  return inner.empty() ? text : fmt::format("{} ({})", text, inner);
}

std::string describe(const Reason& reason) {
  std::string text = fmt::format("{}: {}", to_string(reason.code), reason.have);
  if (!reason.need.empty()) text += ", needs " + reason.need;
  if (!reason.hint.empty()) text += "; " + reason.hint;
  return text;
}

std::string error_text(const Error& error) {
  std::string text = "moetune: error: " + for_terminal(error.what) + "\n";
  for (const auto& hint : error.hints) text += "  hint: " + for_terminal(hint) + "\n";
  return text;
}

}  // namespace moetune
