#include "worker/worker_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/clock.h"

namespace moetune {
namespace {

constexpr double kPollS = 0.1;   // how long a Ctrl-C may go unnoticed
constexpr double kGraceS = 2;    // between closing its pipe and ending
constexpr int kMaxNoise = 1000;  // lines of a library that prints; the answer may still come
constexpr double kWriteS = 10;

/// Text of unknown origin for a message: short, in quotes, nothing in it that a terminal obeys.
std::string quoted(const std::string& text) { return dump_json(Json(text.substr(0, 80))); }

bool is_out_of_memory(int signal, const std::string& log) {
  // SIGKILL is not ours here: the system's answer to a machine without memory. A std::bad_alloc that nobody catches, as
  // in a thread of a library, ends in abort() with these words.
  return signal == SIGKILL || (signal == SIGABRT && log.find("std::bad_alloc") != std::string::npos);
}

}  // namespace

Result<WorkerProcess> WorkerProcess::start(const std::vector<std::string>& argv, const SubprocessOptions& options) {
  MOETUNE_TRY(Subprocess process, Subprocess::start(argv, options));
  return WorkerProcess(std::move(process));
}

tl::unexpected<Loss> WorkerProcess::lose(OutcomeStatus status, const std::string& what, const PhaseClock& clock) {
  process_.kill();
  Loss loss;
  loss.status = status;
  loss.phase = clock.phase();
  loss.diagnosis = loss.phase ? fmt::format("{} in phase '{}'", what, to_string(*loss.phase)) : what;
  loss.log = process_.log();
  loss.candidate = candidate_;
  return tl::unexpected(std::move(loss));
}

tl::unexpected<Loss> WorkerProcess::died(const PhaseClock& clock) {
  if (!process_.wait(kGraceS)) return lose(OutcomeStatus::crashed, "the worker closed its pipe and went on", clock);
  if (is_out_of_memory(process_.signal(), process_.log()))
    return lose(OutcomeStatus::out_of_memory,
                fmt::format("the worker ended, probably for want of memory: {}", process_.ending()), clock);
  return lose(OutcomeStatus::crashed, fmt::format("the worker ended: {}", process_.ending()), clock);
}

tl::expected<std::optional<Reply>, Loss> WorkerProcess::read(const std::string& line, PhaseClock& clock) {
  if (line.empty()) return std::nullopt;
  const auto json = parse_json(line);
  if (json && json->is_object() && json->contains("event")) {
    PhaseEvent event;
    // Other events are of a later version's workers.
    if (!from_json(*json, event) || event.event != "phase" || !json->contains("phase")) return std::nullopt;
    clock.enter(event.phase, now_s());
    candidate_ = static_cast<std::size_t>(std::max<std::int64_t>(event.candidate, 0));
    return std::nullopt;
  }
  if (json && json->is_object() && json->contains("id") && json->contains("ok")) {
    Reply reply;
    if (auto status = from_json(*json, reply); !status)
      return lose(OutcomeStatus::crashed, "the worker's reply makes no sense: " + status.error().what, clock);
    if (reply.id != id_)
      return lose(OutcomeStatus::crashed,
                  fmt::format("the worker answered request {} when asked {}", reply.id.value_or(-1), id_), clock);
    if (!reply.ok && !reply.failure)
      return lose(OutcomeStatus::crashed, "the worker's reply makes no sense: not ok and no failure", clock);
    return reply;
  }
  if (++noise_ > kMaxNoise)
    return lose(OutcomeStatus::crashed,
                fmt::format("the worker sent {} lines that are no answer, the last {}", noise_, quoted(line)), clock);
  return std::nullopt;
}

WorkerProcess::Answer WorkerProcess::ask(Op op, Json body, PhaseClock clock, const std::atomic<bool>* stop) {
  ++id_;
  candidate_ = 0;
  noise_ = 0;
  process_.clear_log();
  if (!process_.write_line(dump_json(to_json(Request{id_, op, std::move(body)})), kWriteS)) return died(clock);
  std::string line;
  while (true) {
    if (stop != nullptr && stop->load()) return lose(OutcomeStatus::skipped, "interrupted", clock);
    const double left = clock.deadline() - now_s();
    if (left <= 0)
      return lose(OutcomeStatus::timed_out, fmt::format("no answer within {:.3g} s", clock.allowed()), clock);
    switch (process_.read_line(line, std::min(kPollS, left))) {
      case Subprocess::Read::closed:
        return died(clock);
      case Subprocess::Read::too_long:
        return lose(OutcomeStatus::crashed, "the worker sent an endless line", clock);
      case Subprocess::Read::timed_out:
        continue;
      case Subprocess::Read::line:
        break;
    }
    auto reply = read(line, clock);
    if (!reply) return tl::unexpected(std::move(reply.error()));
    if (*reply) return std::move(**reply);
  }
}

}  // namespace moetune
