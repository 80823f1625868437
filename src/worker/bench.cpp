#include "worker/bench.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <numeric>
#include <set>

namespace moetune {
namespace {

constexpr std::size_t kOpenSessions = 2;  // each may hold weights of its own
constexpr std::int64_t kPreparedBytes = std::int64_t{256} << 20;
constexpr double kShortCallUs = 2000;       // calls shorter than this are timed a round at a time,
constexpr std::size_t kShortTurnCalls = 3;  // and so many of them in one turn of a race

Outcome outcome_of(OutcomeStatus status, std::string diagnosis) {
  Outcome outcome;
  outcome.status = status;
  outcome.diagnosis = std::move(diagnosis);
  return outcome;
}

/// The times of the calls, which are times.
Result<std::vector<double>> timed(Session& session, std::span<const Call> calls) {
  MOETUNE_TRY(auto samples, session.time(calls));
  if (samples.size() != calls.size())
    return fail(fmt::format("{} calls were timed and {} times came back", calls.size(), samples.size()));
  for (const double us : samples)
    if (!std::isfinite(us) || us <= 0) return fail(fmt::format("a call was timed at {} us", us));
  return samples;
}

/// Short calls a whole round at a time, so that nothing comes between them; long ones singly, so that the rule is heard
/// in time. What comes first of each kind does not count.
Result<std::vector<double>> measure(Session& session, std::span<const Call> calls, const StopRule& stop) {
  MOETUNE_TRY(const auto first, timed(session, calls.first(1)));
  const bool whole_rounds = first.front() < kShortCallUs;
  if (whole_rounds) MOETUNE_CHECK(timed(session, calls));
  Stopper stopper(stop);
  for (std::size_t next = 0; !stopper.done(); next = (next + 1) % calls.size()) {
    MOETUNE_TRY(const auto samples, timed(session, whole_rounds ? calls : calls.subspan(next, 1)));
    for (const double us : samples)
      if (!stopper.done()) stopper.add(us);
  }
  return stopper.samples();
}

void make_read_only(Layer& layer) {
  for (ExpertStack* stack : {&layer.gate, &layer.up, &layer.down})
    for (Buffer* buffer : {&stack->data, &stack->scales, &stack->zeros})
      // Where the system refuses, a stray write is found by what it does to the answers.
      if (buffer->size() != 0) ::mprotect(buffer->data(), static_cast<std::size_t>(buffer->size()), PROT_READ);
}

}  // namespace

Bench::Bench(const Registry& registry, Job job, Layer layer, Announce announce)
    : registry_(registry),
      job_(std::move(job)),
      layer_(std::make_unique<Layer>(std::move(layer))),
      announce_(std::move(announce)),
      most_sessions_(kOpenSessions) {
  make_read_only(*layer_);
}

Result<Bench::Prepared*> Bench::prepare(const Workload& workload) {
  const auto known =
      std::find_if(prepared_.begin(), prepared_.end(), [&](const Prepared& p) { return p.workload == workload; });
  if (known != prepared_.end()) {
    prepared_.splice(prepared_.begin(), prepared_, known);
    return &prepared_.front();
  }
  announce_(Phase::reference, 0);
  const std::int64_t cache_bytes = job_.target.l3_bytes.value_or(job_.target.l2_bytes.value_or(0));
  Prepared fresh{workload, Traffic::make(job_.problem, workload, cache_bytes), {}};
  MOETUNE_TRY(fresh.checker, Checker::make(job_.problem, *layer_, fresh.traffic, workload.seed));
  prepared_.push_front(std::move(fresh));
  const auto held = [this] {
    return std::accumulate(prepared_.begin(), prepared_.end(), std::int64_t{0},
                           [](std::int64_t sum, const Prepared& p) { return sum + p.bytes(); });
  };
  while (prepared_.size() > 1 && held() > kPreparedBytes) prepared_.pop_back();
  return &prepared_.front();
}

Result<Session*> Bench::session(const std::string& id) {
  const auto known =
      std::find_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) { return entry.first == id; });
  if (known != sessions_.end()) {
    sessions_.splice(sessions_.begin(), sessions_, known);
    return sessions_.front().second.get();
  }
  while (sessions_.size() >= most_sessions_) sessions_.pop_back();
  MOETUNE_TRY(auto opened, registry_.find(id)->open(job_.problem, *layer_, job_.target));
  if (opened == nullptr) return fail("no session came back");
  sessions_.emplace_front(id, std::move(opened));
  return sessions_.front().second.get();
}

Outcome Bench::guarded(const std::function<Outcome()>& body) {
  Outcome outcome;
  try {
    outcome = body();
  } catch (const std::bad_alloc&) {
    outcome = outcome_of(OutcomeStatus::out_of_memory, "the backend asked for more memory than there is");
  } catch (const std::exception& e) {
    outcome = outcome_of(OutcomeStatus::crashed, fmt::format("the backend threw: {}", e.what()));
  }
  spoiled_ = spoiled_ || spoils(outcome.status);
  return outcome;
}

Outcome Bench::check_first_calls(Session& session, Prepared& prepared) const {
  Outcome worst;
  for (std::size_t call = 0; call < prepared.checker.calls(); ++call) {
    Outcome outcome = prepared.checker.check(session, prepared.traffic, call, Checker::Way::run,
                                             call == 0 ? "first call" : fmt::format("call {}", call + 1));
    if (outcome.status != OutcomeStatus::ok) return outcome;
    if (call == 0 || outcome.relative_error > worst.relative_error) worst = std::move(outcome);
  }
  return worst;
}

Outcome Bench::run_candidate(Prepared& prepared, const Candidate& candidate, const StopRule& stop, std::size_t index) {
  announce_(Phase::load, index);
  const auto opened = session(candidate.backend);
  if (!opened) return failed(OutcomeStatus::launch_failed, opened.error(), "loading the weights");
  announce_(Phase::configure, index);
  if (auto status = (*opened)->configure(candidate.config, prepared.workload.tokens); !status)
    return failed(OutcomeStatus::compile_failed, status.error(), "configuring");
  announce_(Phase::check, index);
  Outcome outcome = check_first_calls(**opened, prepared);
  if (outcome.status != OutcomeStatus::ok) return outcome;
  announce_(Phase::time, index);
  auto samples = measure(**opened, prepared.traffic.calls(), stop);
  if (!samples) return failed(OutcomeStatus::launch_failed, samples.error(), "timing");
  announce_(Phase::check, index);
  const Outcome again = prepared.checker.check(**opened, prepared.traffic, 0, Checker::Way::timed, "after timing");
  if (again.status != OutcomeStatus::ok) return again;
  outcome.samples_us = std::move(*samples);
  outcome.active_experts = prepared.traffic.mean_active_experts();
  outcome.pairs = prepared.traffic.mean_pairs();
  return outcome;
}

Result<Outcome> Bench::evaluate_one(const Workload& workload, const Candidate& candidate, const StopRule& stop,
                                    std::size_t index) {
  const Backend* backend = registry_.find(candidate.backend);
  if (backend == nullptr)
    return outcome_of(OutcomeStatus::unsupported, fmt::format("no backend '{}' in this build", candidate.backend));
  announce_(Phase::load, index);
  Outcome refusal = guarded([&] {
    Outcome outcome;
    outcome.reasons = backend->why_not(job_.problem, job_.target);
    if (outcome.reasons.empty()) return outcome;
    outcome.status = OutcomeStatus::unsupported;
    outcome.diagnosis = outcome.reasons.front().have + ", needs " + outcome.reasons.front().need;
    return outcome;
  });
  if (refusal.status != OutcomeStatus::ok) return refusal;
  MOETUNE_TRY(Prepared* const prepared, prepare(workload));
  return guarded([&] { return run_candidate(*prepared, candidate, stop, index); });
}

Result<Outcome> Bench::evaluate(const EvaluateRequest& request) {
  most_sessions_ = kOpenSessions;
  return evaluate_one(request.workload, request.candidates.front(), request.stop, 0);
}

struct Bench::Racer {
  const Candidate* candidate = nullptr;
  std::size_t index = 0;
  Outcome outcome;
  Stopper stopper;
  std::size_t turn_calls = 1;  ///< that count, after one to settle in

  [[nodiscard]] bool running() const { return outcome.status == OutcomeStatus::ok && !stopper.done(); }
};

Result<std::vector<Bench::Racer>> Bench::line_up(const EvaluateRequest& request) {
  StopRule brief = request.stop;
  brief.max_samples = 1;
  std::vector<Racer> racers;
  for (std::size_t i = 0; i < request.candidates.size(); ++i) {
    racers.push_back({&request.candidates[i], i, outcome_of(OutcomeStatus::skipped, ""), Stopper(request.stop), 1});
    if (spoiled_) continue;
    Racer& racer = racers.back();
    MOETUNE_TRY(racer.outcome, evaluate_one(request.workload, *racer.candidate, brief, i));
    if (racer.outcome.status != OutcomeStatus::ok) continue;
    if (racer.outcome.samples_us.front() < kShortCallUs) racer.turn_calls = kShortTurnCalls;
    racer.outcome.samples_us.clear();
  }
  return racers;
}

Outcome Bench::take_turn(Racer& racer, Prepared& prepared, std::size_t round) {
  announce_(Phase::time, racer.index);
  const auto opened = session(racer.candidate->backend);
  if (!opened) return failed(OutcomeStatus::launch_failed, opened.error(), "loading the weights");
  if (auto status = (*opened)->configure(racer.candidate->config, prepared.workload.tokens); !status)
    return failed(OutcomeStatus::compile_failed, status.error(), "configuring");
  const std::vector<Call> all = prepared.traffic.calls();
  std::vector<Call> calls;
  for (std::size_t i = 0; i <= racer.turn_calls; ++i)
    calls.push_back(all[(round * (racer.turn_calls + 1) + i) % all.size()]);
  const auto samples = timed(**opened, calls);
  if (!samples) return failed(OutcomeStatus::launch_failed, samples.error(), "timing");
  for (const double us : std::span(*samples).subspan(1))
    if (!racer.stopper.done()) racer.stopper.add(us);
  return racer.outcome;
}

Result<std::vector<Outcome>> Bench::race(const EvaluateRequest& request) {
  std::set<std::string> backends;
  for (const auto& candidate : request.candidates) backends.insert(candidate.backend);
  most_sessions_ = std::max(kOpenSessions, backends.size());  // loading the weights anew each turn would be no race
  MOETUNE_TRY(auto racers, line_up(request));
  const auto running = [](const Racer& racer) { return racer.running(); };
  for (std::size_t round = 0; !spoiled_ && std::any_of(racers.begin(), racers.end(), running); ++round) {
    MOETUNE_TRY(Prepared* const prepared, prepare(request.workload));
    for (auto& racer : racers)
      if (!spoiled_ && racer.running()) racer.outcome = guarded([&] { return take_turn(racer, *prepared, round); });
  }
  std::vector<Outcome> outcomes;
  for (auto& racer : racers) {
    if (racer.outcome.status == OutcomeStatus::ok) racer.outcome.samples_us = racer.stopper.samples();
    if (racer.outcome.status == OutcomeStatus::ok && racer.outcome.samples_us.empty())
      racer.outcome = outcome_of(OutcomeStatus::skipped, "the race ended before its turn");
    outcomes.push_back(std::move(racer.outcome));
  }
  return outcomes;
}

}  // namespace moetune
