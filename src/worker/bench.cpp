#include "worker/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <new>

#include "formats/convert.h"
#include "moe/reference.h"

namespace moetune {
namespace {

constexpr std::int64_t kAllRows = 64;      // up to here every token is compared with the reference,
constexpr std::int64_t kSampledRows = 32;  // above it this many, and all are looked at for NaN
constexpr std::size_t kOpenSessions = 2;   // each may hold weights of its own
constexpr std::uint16_t kPoison = 0x7FC1;  // a NaN that no arithmetic makes
constexpr double kShortCallUs = 2000;      // calls shorter than this are timed a round at a time

Outcome failed(OutcomeStatus status, std::string diagnosis) {
  Outcome outcome;
  outcome.status = status;
  outcome.diagnosis = std::move(diagnosis);
  return outcome;
}

Outcome failed(const Error& error, std::string_view doing) {
  const auto status =
      error.kind == ErrorKind::out_of_memory ? OutcomeStatus::out_of_memory : OutcomeStatus::launch_failed;
  return failed(status, fmt::format("{}: {}", doing, error.what));
}

/// Rows spread over the call, the first and the last among them.
std::vector<std::int64_t> sample_rows(std::int64_t tokens) {
  std::vector<std::int64_t> rows;
  if (tokens <= kAllRows) return rows;
  for (std::int64_t i = 0; i < kSampledRows; ++i) rows.push_back(i * (tokens - 1) / (kSampledRows - 1));
  return rows;
}

}  // namespace

Bench::Bench(const Registry& registry, Job job, Layer layer, std::function<void(std::string_view)> phase)
    : registry_(registry),
      job_(std::move(job)),
      layer_(std::make_unique<Layer>(std::move(layer))),
      phase_(std::move(phase)) {}

Result<Bench::Prepared*> Bench::prepare(const Workload& workload) {
  if (prepared_ && prepared_->first == workload) return &prepared_->second;
  prepared_.reset();
  phase_("reference");
  Prepared prepared{make_traffic(job_.problem, workload), sample_rows(workload.tokens), {}};
  MOETUNE_TRY(prepared.reference, reference_layer(job_.problem, *layer_, prepared.traffic.inputs.front(),
                                                  prepared.traffic.routings.front(), prepared.rows));
  prepared_.emplace(workload, std::move(prepared));
  return &prepared_->second;
}

Result<Session*> Bench::session(const std::string& id) {
  const auto known =
      std::find_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) { return entry.first == id; });
  if (known != sessions_.end()) {
    sessions_.splice(sessions_.begin(), sessions_, known);
    return sessions_.front().second.get();
  }
  const Backend* backend = registry_.find(id);
  if (backend == nullptr) return fail(fmt::format("no backend '{}' in this build", id));
  if (sessions_.size() == kOpenSessions) sessions_.pop_back();
  phase_("load");
  MOETUNE_TRY(auto opened, backend->open(job_.problem, *layer_, job_.target));
  sessions_.emplace_front(id, std::move(opened));
  return sessions_.front().second.get();
}

std::optional<Outcome> Bench::wrong(Session& session, Prepared& prepared, std::string_view when, double& error) {
  Call call = prepared.traffic.calls().front();
  std::fill(call.output.begin(), call.output.end(), kPoison);
  if (auto status = session.run(call); !status) return failed(status.error(), "run");
  const auto bad = std::find_if(call.output.begin(), call.output.end(),
                                [](std::uint16_t v) { return !std::isfinite(bf16_to_float(v)); });
  if (bad != call.output.end()) {
    const std::int64_t at = bad - call.output.begin();
    return failed(OutcomeStatus::nan,
                  fmt::format("{}: token {}, column {} {}", when, at / job_.problem.hidden, at % job_.problem.hidden,
                              *bad == kPoison ? "was not written" : "is not finite"));
  }
  const auto comparison = compare_output(call.output, prepared.reference, job_.problem.hidden,
                                         layer_tolerance(job_.problem), prepared.rows);
  error = comparison.relative_error;
  if (comparison.within) return std::nullopt;
  return failed(OutcomeStatus::wrong_result,
                fmt::format("{}: relative error {:.2e}, at most {:.2e} expected; worst at {}", when,
                            comparison.relative_error, comparison.tolerance, comparison.worst));
}

Result<std::vector<double>> Bench::measure(Session& session, Prepared& prepared, const StopRule& stop) {
  const std::vector<Call> calls = prepared.traffic.calls();
  MOETUNE_TRY(const auto warm_up, session.time(std::span(calls).first(1)));
  const bool whole_round = warm_up.front() < kShortCallUs;
  Stopper stopper(stop);
  for (std::size_t next = 0; !stopper.done(); next = (next + 1) % calls.size()) {
    const auto part = whole_round ? std::span(calls) : std::span(calls).subspan(next, 1);
    MOETUNE_TRY(const auto samples, session.time(part));
    for (const double us : samples)
      if (!stopper.done()) stopper.add(us);
  }
  return stopper.samples();
}

Outcome Bench::evaluate_guarded(const EvaluateRequest& request) {
  const Candidate& candidate = request.candidates.front();
  const Backend* backend = registry_.find(candidate.backend);
  if (backend == nullptr)
    return failed(OutcomeStatus::unsupported, fmt::format("no backend '{}' in this build", candidate.backend));
  Outcome outcome;
  outcome.reasons = backend->why_not(job_.problem, job_.target);
  if (!outcome.reasons.empty()) {
    outcome.status = OutcomeStatus::unsupported;
    outcome.diagnosis = outcome.reasons.front().have + ", needs " + outcome.reasons.front().need;
    return outcome;
  }
  auto prepared = prepare(request.workload);
  if (!prepared) return failed(prepared.error(), "reference");
  auto opened = session(candidate.backend);
  if (!opened) return failed(opened.error(), "load");
  phase_("configure");
  if (auto status = (*opened)->configure(candidate.config, request.workload.tokens); !status)
    return failed(status.error(), "configure");
  phase_("check");
  outcome.tolerance = layer_tolerance(job_.problem);
  if (auto bad = wrong(**opened, **prepared, "first call", outcome.relative_error)) return *bad;
  phase_("time");
  auto samples = measure(**opened, **prepared, request.stop);
  if (!samples) return failed(samples.error(), "run");
  phase_("check");
  double again = 0;
  if (auto bad = wrong(**opened, **prepared, "after timing", again)) return *bad;
  outcome.samples_us = std::move(*samples);
  outcome.active_experts = (*prepared)->traffic.mean_active_experts();
  outcome.pairs = (*prepared)->traffic.mean_pairs();
  return outcome;
}

Outcome Bench::evaluate(const EvaluateRequest& request) {
  try {
    return evaluate_guarded(request);
  } catch (const std::bad_alloc&) {
    sessions_.clear();
    return failed(OutcomeStatus::out_of_memory, "the backend asked for more memory than there is");
  } catch (const std::exception& e) {
    sessions_.clear();
    return failed(OutcomeStatus::crashed, fmt::format("the backend threw: {}", e.what()));
  }
}

std::vector<Outcome> Bench::race(const EvaluateRequest& request) {
  std::vector<Outcome> outcomes;
  for (const auto& candidate : request.candidates) {
    EvaluateRequest one{request.workload, {candidate}, request.stop};
    one.stop.max_samples = 1;
    outcomes.push_back(evaluate(one));
    outcomes.back().samples_us.clear();
  }
  std::vector<Stopper> stoppers(request.candidates.size(), Stopper(request.stop));
  const auto running = [&](std::size_t i) { return outcomes[i].status == OutcomeStatus::ok && !stoppers[i].done(); };
  for (std::size_t next = 0; prepared_; ++next) {
    bool any = false;
    for (std::size_t i = 0; i < request.candidates.size(); ++i) {
      if (!running(i)) continue;
      any = true;
      const std::vector<Call> calls = prepared_->second.traffic.calls();
      auto opened = session(request.candidates[i].backend);
      Result<std::vector<double>> samples = fail("");
      if (opened && (*opened)->configure(request.candidates[i].config, request.workload.tokens)) {
        // One call to settle after the change of config, one that counts.
        const std::array<Call, 2> pair{calls[(2 * next) % calls.size()], calls[(2 * next + 1) % calls.size()]};
        samples = (*opened)->time(pair);
      }
      if (!samples)
        outcomes[i] = failed(OutcomeStatus::launch_failed, "failed while raced");
      else
        stoppers[i].add(samples->back());
    }
    if (!any) break;
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    if (outcomes[i].status == OutcomeStatus::ok) outcomes[i].samples_us = stoppers[i].samples();
  return outcomes;
}

}  // namespace moetune
