#include "backend/verdict.h"

namespace moetune {

std::vector<Verdict> check_backends(const Registry& registry, const Problem& problem, const Target& target) {
  std::vector<Verdict> verdicts;
  for (const auto& backend : registry.backends()) {
    Verdict verdict;
    verdict.id = backend->id();
    verdict.reasons = backend->why_not(problem, target);
    if (verdict.reasons.empty())
      if (auto compiled = backend->compile(problem, target)) {
        verdict.reasons = *std::move(compiled);
        verdict.evidence = Evidence::compiles;
      }
    verdict.runs = verdict.reasons.empty();
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

}  // namespace moetune
