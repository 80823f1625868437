// Machine-readable output: one object on standard output. Fields may be added, never renamed; unknown is null.
#pragma once

#include <string>

#include "arch/target.h"
#include "base/error.h"
#include "base/json.h"
#include "base/reason.h"
#include "model/problem.h"

namespace moetune {

/// The version of the output objects' meaning.
inline constexpr int kOutputSchema = 1;

/// `fields` behind {"moetune": {"version", "schema"}}.
[[nodiscard]] Json envelope(const Json& fields);

/// The layer as outputs spell it: {model, experts, top_k, hidden, intermediate, tp, ep, weight_format,
/// activation_format, activation, …}.
[[nodiscard]] Json problem_json(const Problem& problem);

/// The layer in one line: "128 experts, top-8, hidden 2048, intermediate 768, nvfp4, silu".
[[nodiscard]] std::string describe(const Problem& problem);
/// The place in one line: "AMD EPYC (avx2, 2 cores, 32 MB L3)".
[[nodiscard]] std::string describe(const Target& target);
/// One reason in one sentence: "weight_format: int8, needs bf16 or fp8; hint".
[[nodiscard]] std::string describe(const Reason& reason);

/// "moetune: error: …", then the hints, a line each; for standard error.
[[nodiscard]] std::string error_text(const Error& error);

}  // namespace moetune
