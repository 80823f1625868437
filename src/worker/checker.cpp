#include "worker/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "formats/convert.h"
#include "moe/random.h"
#include "moe/reference.h"

namespace moetune {
namespace {

Outcome wrong(OutcomeStatus status, std::string diagnosis) {
  Outcome outcome;
  outcome.status = status;
  outcome.diagnosis = std::move(diagnosis);
  return outcome;
}

Status run_once(Session& session, const Call& call, Checker::Way way) {
  if (way == Checker::Way::run) return session.run(call);
  MOETUNE_TRY(const auto times, session.time({&call, 1}));
  if (times.size() != 1) return fail(fmt::format("one call was timed and {} times came back", times.size()));
  return {};
}

}  // namespace

Outcome failed(OutcomeStatus status, const Error& error, std::string_view doing) {
  if (error.kind == ErrorKind::out_of_memory) status = OutcomeStatus::out_of_memory;
  if (error.kind == ErrorKind::device_lost) status = OutcomeStatus::launch_failed;
  std::string diagnosis = fmt::format("{}: {}", doing, error.what);
  for (const auto& hint : error.hints) diagnosis += "; " + hint;
  return wrong(status, std::move(diagnosis));
}

std::vector<std::int64_t> compared_tokens(std::int64_t tokens, std::uint64_t seed) {
  if (tokens <= kAllTokens) return {};
  std::set<std::int64_t> chosen{0, tokens - 1};
  SplitMix64 random(seed);
  while (std::ssize(chosen) < kSampledTokens) chosen.insert(random.below(static_cast<std::uint32_t>(tokens)));
  return {chosen.begin(), chosen.end()};
}

Result<Checker> Checker::make(const Problem& problem, const Layer& layer, const Traffic& traffic, std::uint64_t seed) {
  Checker checker;
  checker.hidden_ = problem.hidden;
  checker.tolerance_ = layer_tolerance(problem);
  const std::int64_t tokens = traffic.routings().front().tokens;
  checker.tokens_ = compared_tokens(tokens, seed);
  const std::int64_t compared = checker.tokens_.empty() ? tokens : std::ssize(checker.tokens_);
  std::int64_t done = 0;
  for (std::size_t i = 0; i < traffic.inputs().size() && done < kEnoughTokens; ++i, done += compared) {
    MOETUNE_TRY(auto reference,
                reference_layer(problem, layer, traffic.inputs()[i], traffic.routings()[i], checker.tokens_));
    checker.references_.push_back(std::move(reference));
  }
  return checker;
}

Outcome Checker::check(Session& session, Traffic& traffic, std::size_t call, Way way, std::string_view when) const {
  traffic.poison();
  const Call what = traffic.calls()[call];
  if (auto status = run_once(session, what, way); !status)
    return failed(OutcomeStatus::launch_failed, status.error(), when);
  const auto bad = std::find_if(what.output.begin(), what.output.end(),
                                [](std::uint16_t value) { return !std::isfinite(bf16_to_float(value)); });
  if (bad != what.output.end()) {
    const std::int64_t at = bad - what.output.begin();
    return wrong(OutcomeStatus::nan, fmt::format("{}: token {}, column {} {}", when, at / hidden_, at % hidden_,
                                                 Traffic::is_poison(*bad) ? "was not written" : "is not finite"));
  }
  if (const std::int64_t stray = traffic.stray_writes(); stray != 0)
    return wrong(OutcomeStatus::wrong_result,
                 fmt::format("{}: {} values were written outside the output", when, stray));
  const auto comparison = compare_output(what.output, references_[call], hidden_, tolerance_, tokens_);
  Outcome outcome;
  outcome.tolerance = comparison.tolerance;
  // An infinite one, of a reference that is all zero, has no number in JSON; the diagnosis has the element.
  if (std::isfinite(comparison.relative_error)) outcome.relative_error = comparison.relative_error;
  if (comparison.within) return outcome;
  outcome.status = OutcomeStatus::wrong_result;
  if (comparison.relative_error > comparison.tolerance)
    outcome.diagnosis = fmt::format("{}: relative error {:.2e}, at most {:.2e} expected; worst at {}", when,
                                    comparison.relative_error, comparison.tolerance, comparison.worst);
  else
    outcome.diagnosis = fmt::format("{}: one value is off by {:.2e} of its token's size, at most {:.2e} expected: {}",
                                    when, comparison.worst_error, kWorstFactor * tolerance_, comparison.worst);
  return outcome;
}

std::int64_t Checker::bytes() const {
  std::size_t bytes = 0;
  for (const auto& reference : references_) bytes += reference.size() * sizeof(float);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace moetune
