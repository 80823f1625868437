#include "worker/worker_evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/clock.h"
#include "base/log.h"

namespace moetune {
namespace {

constexpr int kMaxFailedOpens = 3;
constexpr double kHelloS = 20;
constexpr double kPollS = 0.1;  // how long a Ctrl-C may go unnoticed
constexpr int kMaxGarbageLines = 1000;

// Deadlines are for hangs, not for slowness: rates a tenth of what the slowest machine in use does.
constexpr double kLoadBytesPerS = 50e6;
constexpr double kReferenceFlopsPerS = 50e6;
constexpr double kBaseS = 60;

}  // namespace

WorkerEvaluator::WorkerEvaluator(Job job, WorkerOptions options) : job_(std::move(job)), options_(std::move(options)) {}

double WorkerEvaluator::deadline(const Workload& workload, std::size_t candidates) const {
  if (options_.evaluate_s > 0) return options_.evaluate_s * static_cast<double>(candidates);
  const double flops = layer_flops(job_.problem, std::min<std::int64_t>(workload.tokens, 64) * job_.problem.top_k);
  return kBaseS + flops / kReferenceFlopsPerS +
         static_cast<double>(candidates) * (options_.stop.max_s + options_.race_stop.max_s + 30);
}

WorkerEvaluator::Loss WorkerEvaluator::lose(OutcomeStatus status, const std::string& what) {
  worker_->kill();
  Loss loss{status, phase_.empty() ? what : fmt::format("{} in phase '{}'", what, phase_), worker_->log()};
  worker_.reset();
  return loss;
}

WorkerEvaluator::Loss WorkerEvaluator::died() {
  constexpr double kGraceS = 5;  // between closing its pipe and ending
  if (!worker_->wait(kGraceS)) return lose(OutcomeStatus::crashed, "the worker closed its pipe and went on");
  // SIGKILL that we did not send: the system's answer to a machine without memory.
  const bool killed = worker_->signal() == SIGKILL;
  return lose(killed ? OutcomeStatus::out_of_memory : OutcomeStatus::crashed,
              fmt::format("the worker ended: {}{}", worker_->ending(),
                          killed ? ", probably by the system for want of memory" : ""));
}

WorkerEvaluator::Answer WorkerEvaluator::read_answer(std::int64_t id, double seconds) {
  const double give_up = now_s() + seconds;
  std::string line;
  for (int garbage = 0; garbage < kMaxGarbageLines;) {
    switch (worker_->read_line(line, std::min(kPollS, std::max(0.0, give_up - now_s())))) {
      case Subprocess::Read::closed:
        return tl::unexpected(died());
      case Subprocess::Read::too_long:
        return tl::unexpected(lose(OutcomeStatus::crashed, "the worker sent an endless line"));
      case Subprocess::Read::timed_out:
        if (options_.stop_flag != nullptr && options_.stop_flag->load())
          return tl::unexpected(lose(OutcomeStatus::skipped, "interrupted"));
        if (now_s() >= give_up)
          return tl::unexpected(lose(OutcomeStatus::timed_out, fmt::format("no answer within {:.3g} s", seconds)));
        continue;
      case Subprocess::Read::line:
        break;
    }
    const auto json = parse_json(line);
    if (json && json->is_object() && json->contains("phase") && (*json)["phase"].is_string()) {
      phase_ = (*json)["phase"].get<std::string>().substr(0, 40);
    } else if (json && json->is_object() && json->value("id", Json()) == Json(id) &&
               json->value("ok", Json()).is_boolean()) {
      return *json;
    } else {
      ++garbage;  // a library that prints; the answer may still come
    }
  }
  return tl::unexpected(
      lose(OutcomeStatus::crashed, fmt::format("the worker sent {} lines that are no answer", kMaxGarbageLines)));
}

WorkerEvaluator::Answer WorkerEvaluator::ask(std::string_view op, const Json& body, double seconds) {
  const std::int64_t id = next_id_++;
  phase_.clear();
  Json request{{"id", id}, {"op", op}};
  request[std::string(op)] = body;
  if (!worker_->write_line(dump_json(request))) return tl::unexpected(died());
  return read_answer(id, seconds);
}

std::optional<WorkerEvaluator::Loss> WorkerEvaluator::ensure_open() {
  if (worker_) return std::nullopt;
  if (refused_) return Loss{OutcomeStatus::launch_failed, refused_->what, ""};
  if (failed_opens_ >= kMaxFailedOpens)
    return Loss{OutcomeStatus::launch_failed,
                fmt::format("the worker failed to load the layer {} times in a row", failed_opens_), ""};
  SubprocessOptions process;
  process.memory_limit_bytes = options_.memory_limit_bytes;
  auto started = Subprocess::start(options_.argv, process);
  if (!started) return Loss{OutcomeStatus::launch_failed, started.error().what, ""};
  worker_.emplace(std::move(*started));
  ++starts_;
  ++failed_opens_;  // until it has answered
  const auto hello = ask("hello", Json::object(), kHelloS);
  if (!hello) return hello.error();
  Greeting greeting;
  if (!(*hello)["ok"].get<bool>() || !from_json(hello->value("result", Json()), greeting) ||
      greeting.protocol != kProtocolVersion)
    return lose(OutcomeStatus::launch_failed, fmt::format("the worker does not speak protocol {}", kProtocolVersion));
  const double bytes = static_cast<double>(expert_bytes(job_.problem)) * static_cast<double>(job_.problem.experts);
  const double seconds = options_.open_s > 0 ? options_.open_s : kBaseS + bytes / kLoadBytesPerS;
  const auto opened = ask("open", to_json(job_), seconds);
  if (!opened) return opened.error();
  if (!(*opened)["ok"].get<bool>()) {
    Error error;
    const Json hints = opened->value("hints", Json::array());
    if (!from_json(opened->value("error", Json()), error.what)) error.what = "the worker refused the layer";
    if (!from_json(hints, error.hints)) error.hints.clear();
    refused_ = error;
    return lose(OutcomeStatus::launch_failed, error.what);
  }
  failed_opens_ = 0;
  return std::nullopt;
}

Status WorkerEvaluator::open() {
  while (true) {
    const auto loss = ensure_open();
    if (!loss) return {};
    if (refused_) return tl::unexpected(*refused_);
    if (loss->status == OutcomeStatus::skipped) return fail("interrupted");
    if (failed_opens_ >= kMaxFailedOpens || failed_opens_ == 0) return fail("cannot run the layer: " + loss->diagnosis);
  }
}

namespace {

Outcome outcome_of(OutcomeStatus status, std::string diagnosis, std::string log) {
  Outcome outcome;
  outcome.status = status;
  outcome.diagnosis = std::move(diagnosis);
  outcome.log = std::move(log);
  return outcome;
}

}  // namespace

Outcome WorkerEvaluator::evaluate(const Workload& workload, const Candidate& candidate) {
  if (options_.stop_flag != nullptr && options_.stop_flag->load())
    return outcome_of(OutcomeStatus::skipped, "interrupted", "");
  if (const auto loss = ensure_open()) return outcome_of(loss->status, loss->diagnosis, loss->log);
  const auto answer =
      ask("evaluate", to_json(EvaluateRequest{workload, {candidate}, options_.stop}), deadline(workload, 1));
  if (!answer) return outcome_of(answer.error().status, answer.error().diagnosis, answer.error().log);
  Outcome outcome;
  if (!(*answer)["ok"].get<bool>())
    return outcome_of(OutcomeStatus::launch_failed, dump_json(answer->value("error", Json())), "");
  if (auto status = from_json(answer->value("result", Json()), outcome); !status) {
    const Loss loss = lose(OutcomeStatus::crashed, "the worker's answer makes no sense: " + status.error().what);
    return outcome_of(loss.status, loss.diagnosis, loss.log);
  }
  if (outcome.status != OutcomeStatus::ok && outcome.log.empty()) outcome.log = worker_->log();
  // A failed launch or a throw may leave a device or a heap in a state that the next candidate would be blamed for.
  if (outcome.status == OutcomeStatus::launch_failed || outcome.status == OutcomeStatus::crashed ||
      outcome.status == OutcomeStatus::out_of_memory)
    worker_.reset();
  return outcome;
}

std::vector<Outcome> WorkerEvaluator::race(const Workload& workload, std::span<const Candidate> candidates) {
  const auto all = [&](const Loss& loss) {
    return std::vector<Outcome>(candidates.size(), outcome_of(loss.status, loss.diagnosis, loss.log));
  };
  if (options_.stop_flag != nullptr && options_.stop_flag->load())
    return all({OutcomeStatus::skipped, "interrupted", ""});
  if (const auto loss = ensure_open()) return all(*loss);
  const EvaluateRequest request{workload, {candidates.begin(), candidates.end()}, options_.race_stop};
  const auto answer = ask("race", to_json(request), deadline(workload, candidates.size()));
  if (!answer) return all(answer.error());
  std::vector<Outcome> outcomes;
  if (!(*answer)["ok"].get<bool>() || !from_json(answer->value("result", Json()), outcomes) ||
      outcomes.size() != candidates.size())
    return all(lose(OutcomeStatus::crashed, "the worker's answer makes no sense"));
  return outcomes;
}

Result<Ceilings> WorkerEvaluator::ceilings() {
  MOETUNE_CHECK(open());
  constexpr double kCeilingsS = 120;
  const auto answer = ask("ceilings", Json::object(), kCeilingsS);
  if (!answer) return fail("measuring the ceilings failed: " + answer.error().diagnosis);
  if (!(*answer)["ok"].get<bool>())
    return fail("measuring the ceilings failed: " + dump_json(answer->value("error", Json())));
  Ceilings ceilings;
  MOETUNE_CHECK(from_json(answer->value("result", Json()), ceilings));
  return ceilings;
}

}  // namespace moetune
