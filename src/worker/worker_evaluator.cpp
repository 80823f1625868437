#include "worker/worker_evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"

namespace moetune {
namespace {

constexpr int kMaxFailedOpens = 3;
constexpr double kReplyS = 20;  // until the first phase, and for requests without one

Outcome make_outcome(OutcomeStatus status, std::string diagnosis, std::string log = "") {
  Outcome outcome;
  outcome.status = status;
  outcome.diagnosis = std::move(diagnosis);
  outcome.log = std::move(log);
  return outcome;
}

/// Whether the candidate had its turn when the worker was lost.
bool had_turn(const Loss& loss) { return loss.phase && *loss.phase != Phase::reference && *loss.phase != Phase::open; }

std::string last_line(const std::string& log) {
  const auto end = log.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "";
  const auto before = log.find_last_of('\n', end);
  const auto begin = before == std::string::npos ? 0 : before + 1;
  return log.substr(begin, end + 1 - begin);
}

Error error_of(const Loss& loss) {
  Error error;
  error.what = loss.diagnosis;
  if (loss.status == OutcomeStatus::out_of_memory) error.kind = ErrorKind::out_of_memory;
  if (const std::string words = last_line(loss.log); !words.empty())
    error.hints.push_back("it printed last: " + dump_json(Json(words.substr(0, 200))));
  return error;
}

Error error_of(const Failure& failure) {
  return {failure.what, failure.hints, failure.out_of_memory ? ErrorKind::out_of_memory : ErrorKind::other};
}

/// Nothing where the outcome is one that a worker may report of a candidate.
std::optional<std::string> nonsense_in(const Outcome& outcome) {
  if (outcome.status != OutcomeStatus::ok) return std::nullopt;
  if (outcome.samples_us.empty()) return "ok without samples";
  const auto no_time = [](double us) { return !std::isfinite(us) || us <= 0; };
  if (std::any_of(outcome.samples_us.begin(), outcome.samples_us.end(), no_time)) return "a sample that is no time";
  return std::nullopt;
}

Outcome outcome_of(const Loss& loss) { return make_outcome(loss.status, loss.diagnosis, loss.log); }

/// The worker could not make the workload or compute its reference.
Outcome not_run(const Failure& failure, const std::string& log) {
  std::string diagnosis = failure.what;
  for (const auto& hint : failure.hints) diagnosis += "; " + hint;
  return make_outcome(OutcomeStatus::skipped, std::move(diagnosis), log);
}

}  // namespace

WorkerEvaluator::WorkerEvaluator(Job job, WorkerOptions options) : job_(std::move(job)), options_(std::move(options)) {}

Status WorkerEvaluator::open_job(WorkerProcess& worker) {
  PhaseLimits limits = phase_limits(job_.problem);
  if (options_.open_s > 0) limits.set(Phase::open, options_.open_s);
  const auto ask = [&](Op op, Json body, double total_s) -> Result<Json> {
    auto answer = worker.ask(op, std::move(body), PhaseClock(now_s(), limits, kReplyS, std::nullopt, total_s),
                             options_.stop_flag);
    if (!answer) return tl::unexpected(error_of(answer.error()));
    if (answer->ok) return std::move(answer->result);
    const Error refusal = error_of(*answer->failure);
    // It would say the same again, but memory may be there the next time.
    if (refusal.kind != ErrorKind::out_of_memory) given_up_ = refusal;
    return tl::unexpected(refusal);
  };
  MOETUNE_TRY(const Json hello, ask(Op::hello, Json::object(), kReplyS));
  Greeting greeting;
  if (!from_json(hello, greeting) || greeting.protocol != kProtocolVersion) {
    given_up_ = Error{fmt::format("the worker speaks protocol {}, not {}", greeting.protocol, kProtocolVersion),
                      {"use a worker of the same version as this moetune"}};
    return tl::unexpected(*given_up_);
  }
  MOETUNE_CHECK(ask(Op::open, to_json(job_), kReplyS + limits.of(Phase::open)));
  return {};
}

Status WorkerEvaluator::try_open() {
  SubprocessOptions process;
  process.memory_limit_bytes = options_.memory_limit_bytes;
  MOETUNE_TRY(WorkerProcess worker, WorkerProcess::start(options_.argv, process));
  ++starts_;
  MOETUNE_CHECK(open_job(worker));
  worker_.emplace(std::move(worker));
  used_ = false;
  failed_opens_ = 0;
  return {};
}

Status WorkerEvaluator::open() {
  while (!worker_) {
    if (given_up_) return tl::unexpected(*given_up_);
    if (stopped()) return fail("interrupted");
    const Status status = try_open();
    if (status || given_up_ || stopped() || ++failed_opens_ < kMaxFailedOpens) continue;
    given_up_ = status.error();
    given_up_->what =
        fmt::format("the worker failed to load the layer {} times in a row: {}", failed_opens_, status.error().what);
  }
  return {};
}

PhaseClock WorkerEvaluator::clock_for(Op op, const EvaluateRequest& request) const {
  const bool known = fastest_ && fastest_->first == request.workload;
  PhaseLimits limits = phase_limits(job_.problem, request.workload, request.stop,
                                    known ? std::optional(fastest_->second) : std::nullopt);
  std::optional<double> candidate_s;
  if (options_.evaluate_s > 0 && op == Op::evaluate) candidate_s = options_.evaluate_s;
  if (options_.evaluate_s > 0 && op == Op::race)
    for (const Phase phase : {Phase::load, Phase::configure, Phase::check, Phase::time})
      limits.set(phase, options_.evaluate_s);
  const double one_s = candidate_s.value_or(limits.of(Phase::load) + limits.of(Phase::configure) +
                                            2 * limits.of(Phase::check) + limits.of(Phase::time));
  // The turns of a race are many phases, each far shorter than its limit.
  const double rounds = op == Op::race ? 2 : 1;
  const double total_s =
      kReplyS + limits.of(Phase::reference) + rounds * one_s * static_cast<double>(request.candidates.size());
  return PhaseClock(now_s(), limits, kReplyS, candidate_s, total_s);
}

WorkerEvaluator::Answer WorkerEvaluator::ask_once(Op op, const EvaluateRequest& request) {
  if (const auto status = open(); !status) {
    Loss loss;
    loss.status = OutcomeStatus::skipped;
    loss.diagnosis = status.error().what;
    return tl::unexpected(std::move(loss));
  }
  used_ = true;
  auto reply = worker_->ask(op, to_json(request), clock_for(op, request), options_.stop_flag);
  if (!reply) {
    worker_.reset();
    return tl::unexpected(std::move(reply.error()));
  }
  Given given{std::move(*reply), worker_->log()};
  if (given.reply.spoiled) worker_.reset();
  return given;
}

WorkerEvaluator::Answer WorkerEvaluator::ask(Op op, const EvaluateRequest& request) {
  if (no_reference_ && no_reference_->first == request.workload) return tl::unexpected(no_reference_->second);
  const auto before_its_turn = [](const Answer& answer) {
    return !answer && answer.error().status != OutcomeStatus::skipped && !had_turn(answer.error());
  };
  const bool was_used = worker_ && used_;
  Answer answer = ask_once(op, request);
  if (before_its_turn(answer) && was_used) answer = ask_once(op, request);
  if (before_its_turn(answer) && answer.error().phase) {
    answer.error().status = OutcomeStatus::skipped;
    no_reference_.emplace(request.workload, answer.error());
  }
  return answer;
}

Outcome WorkerEvaluator::read_outcome(const Json& json, const std::string& log) {
  Outcome outcome;
  const Status status = from_json(json, outcome);
  const auto nonsense = status ? nonsense_in(outcome) : std::optional(status.error().what);
  if (nonsense) {
    worker_.reset();
    return make_outcome(OutcomeStatus::crashed, "the worker's answer makes no sense: " + *nonsense, log);
  }
  if (outcome.status != OutcomeStatus::ok && outcome.log.empty()) outcome.log = log;
  if (spoils(outcome.status)) worker_.reset();
  return outcome;
}

Outcome WorkerEvaluator::evaluate(const Workload& workload, const Candidate& candidate) {
  const Answer answer = ask(Op::evaluate, {workload, {candidate}, options_.stop});
  if (!answer) return outcome_of(answer.error());
  const auto& [reply, log] = *answer;
  if (!reply.ok) return not_run(*reply.failure, log);
  const Outcome outcome = read_outcome(reply.result, log);
  if (outcome.status == OutcomeStatus::ok) {
    const double call_s = *std::min_element(outcome.samples_us.begin(), outcome.samples_us.end()) * 1e-6;
    const bool known = fastest_ && fastest_->first == workload;
    fastest_.emplace(workload, known ? std::min(fastest_->second, call_s) : call_s);
  }
  return outcome;
}

std::vector<std::size_t> WorkerEvaluator::race_once(const EvaluateRequest& request,
                                                    const std::vector<std::size_t>& racers,
                                                    std::vector<Outcome>& outcomes) {
  const auto all_are = [&](const Outcome& outcome) {
    for (const std::size_t racer : racers) outcomes[racer] = outcome;
    return std::vector<std::size_t>();
  };
  std::vector<std::size_t> others = racers;
  const Answer answer = ask(Op::race, request);
  if (!answer) {
    const Loss& loss = answer.error();
    const Outcome lost = outcome_of(loss);
    if (loss.status == OutcomeStatus::skipped || !had_turn(loss) || loss.candidate >= racers.size())
      return all_are(lost);
    outcomes[racers[loss.candidate]] = lost;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(loss.candidate));
    return others;
  }
  const auto& [reply, log] = *answer;
  if (!reply.ok) return all_are(not_run(*reply.failure, log));
  if (!reply.result.is_array() || reply.result.size() != racers.size()) {
    worker_.reset();
    return all_are(make_outcome(OutcomeStatus::crashed, "the worker's answer to a race is no list of all", log));
  }
  bool spoiled = reply.spoiled;
  others.clear();
  for (std::size_t i = 0; i < racers.size(); ++i) {
    Outcome& outcome = outcomes[racers[i]];
    outcome = read_outcome(reply.result[i], log);
    spoiled = spoiled || spoils(outcome.status);
    if (outcome.status == OutcomeStatus::ok || outcome.status == OutcomeStatus::skipped) others.push_back(racers[i]);
  }
  // Where nobody failed there is nobody to run without.
  return spoiled && others.size() < racers.size() ? others : std::vector<std::size_t>();
}

std::vector<Outcome> WorkerEvaluator::race(const Workload& workload, std::span<const Candidate> candidates) {
  std::vector<Outcome> outcomes(candidates.size());
  std::vector<std::size_t> racers(candidates.size());
  std::iota(racers.begin(), racers.end(), std::size_t{0});
  // Each round leaves at least one out.
  while (!racers.empty()) {
    EvaluateRequest request{workload, {}, options_.race_stop};
    for (const std::size_t racer : racers) request.candidates.push_back(candidates[racer]);
    racers = race_once(request, racers, outcomes);
  }
  return outcomes;
}

Result<Ceilings> WorkerEvaluator::ceilings() {
  MOETUNE_CHECK(open());
  const PhaseLimits limits = phase_limits(job_.problem);
  const auto answer = worker_->ask(
      Op::ceilings, Json::object(),
      PhaseClock(now_s(), limits, kReplyS, std::nullopt, kReplyS + limits.of(Phase::ceilings)), options_.stop_flag);
  constexpr const char* kWhat = "measuring the ceilings";
  if (!answer) {
    worker_.reset();
    return fail_in(kWhat, error_of(answer.error()));
  }
  if (!answer->ok) return fail_in(kWhat, error_of(*answer->failure));
  Ceilings ceilings;
  if (auto status = from_json(answer->result, ceilings); !status) return fail_in(kWhat, status.error());
  return ceilings;
}

}  // namespace moetune
