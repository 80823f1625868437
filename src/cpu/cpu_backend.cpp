#include "cpu/cpu_backend.h"

#include <fmt/format.h>

#include "cpu/revision.h"
#include "formats/dequantize.h"

namespace moetune {
namespace {

constexpr std::string_view kSource = "src/cpu/cpu_backend.cpp";
/// Sizes are kept in 32 bits here and there; no model comes near.
constexpr std::int64_t kMaxExperts = 1 << 20;

void refuse(Reasons& reasons, ReasonCode code, std::string have, std::string need, std::string hint = {}) {
  reasons.push_back({code, std::move(have), std::move(need), std::move(hint), std::string(kSource)});
}

void check_counts(const Problem& problem, Reasons& reasons) {
  if (problem.experts < 1 || problem.experts > kMaxExperts)
    refuse(reasons, ReasonCode::shape, fmt::format("{} experts", problem.experts),
           fmt::format("1 to {} experts", kMaxExperts));
  if (problem.top_k < 1 || problem.top_k > kMaxExperts)
    refuse(reasons, ReasonCode::routing, fmt::format("top-{}", problem.top_k), fmt::format("top-1 to {}", kMaxExperts));
}

void check_projection(const Problem& problem, std::string_view name, std::int64_t n, std::int64_t k, Reasons& reasons) {
  if (const auto status = check_shape(problem.weights, n, k); !status)
    refuse(reasons, ReasonCode::shape, fmt::format("{} of {} x {} in {}", name, n, k, describe(problem.weights)),
           status.error().what);
}

}  // namespace

std::string CpuBackend::revision() const { return std::string(kCpuRevision); }

Reasons CpuBackend::why_not(const Problem& problem, const Target& target) const {
  Reasons reasons;
  if (target.kind != TargetKind::cpu) refuse(reasons, ReasonCode::arch, target.name, "a CPU", "use --device cpu");
  if (problem.activation.kind == ActivationKind::situ)
    refuse(reasons, ReasonCode::activation_function, "situ",
           "silu, gelu, gelu_tanh, relu2, silu_clamped or swiglu_oai");
  check_counts(problem, reasons);
  check_projection(problem, "gate and up", problem.intermediate, problem.hidden, reasons);
  check_projection(problem, "down", problem.hidden, problem.intermediate, reasons);
  if (reasons.empty())
    if (auto reason = memory_reason(problem, target, kSource)) reasons.push_back(*std::move(reason));
  return reasons;
}

}  // namespace moetune
