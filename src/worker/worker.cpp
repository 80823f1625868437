#include "worker/worker.h"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <optional>

#include "base/log.h"
#include "model/layer.h"
#include "worker/bench.h"
#include "worker/line_channel.h"
#include "worker/protocol.h"

namespace moetune {
namespace {

constexpr std::int64_t kMostTokens = 1 << 20;
constexpr std::size_t kMostCandidates = 1024;

class Worker {
 public:
  Worker(const Registry& registry, LineChannel channel) : registry_(registry), channel_(std::move(channel)) {}

  int run() {
    std::string line;
    while (true) {
      const auto got = channel_.read(line);
      if (got == LineChannel::Read::ended) return 0;
      if (got == LineChannel::Read::too_long) return 1;
      if (line.empty()) continue;
      const auto request = parse(line);
      if (!request) {
        reply(std::nullopt, tl::unexpected(request.error()));
        continue;
      }
      if (request->op == Op::quit) return 0;
      reply(request->id, answer_guarded(*request));
    }
  }

 private:
  static Result<Request> parse(const std::string& line) {
    MOETUNE_TRY(const Json json, parse_json(line));
    Request request;
    if (!json.is_object() || !json.contains("op"))
      return fail("a request is an object with \"id\", \"op\" and \"body\"");
    MOETUNE_CHECK(from_json(json, request));
    return request;
  }

  void reply(std::optional<std::int64_t> id, const Result<Json>& result) {
    Reply reply;
    reply.id = id;
    reply.ok = result.has_value();
    reply.spoiled = bench_ && bench_->spoiled();
    if (result)
      reply.result = *result;
    else
      reply.failure =
          Failure{result.error().what, result.error().hints, result.error().kind == ErrorKind::out_of_memory};
    channel_.write(dump_json(to_json(reply)));
  }

  /// Libraries throw, and memory ends where no backend is at work too.
  Result<Json> answer_guarded(const Request& request) {
    try {
      return answer(request);
    } catch (const std::bad_alloc&) {
      return fail(fmt::format("not enough memory for '{}'", to_string(request.op)), {}, ErrorKind::out_of_memory);
    } catch (const std::exception& e) {
      return fail(fmt::format("'{}' failed: {}", to_string(request.op), e.what()));
    }
  }

  Result<Json> answer(const Request& request) {
    switch (request.op) {
      case Op::hello:
        return hello();
      case Op::open:
        return open(request.body);
      case Op::ceilings:
        return ceilings();
      case Op::evaluate:
      case Op::race:
        return evaluate(request.op, request.body);
      case Op::quit:
        break;
    }
    return Json::object();
  }

  Result<Json> hello() const {
    Greeting greeting;
    greeting.protocol = kProtocolVersion;
    greeting.version = MOETUNE_VERSION;
    for (const auto& backend : registry_.backends()) greeting.backends.push_back(backend->id());
    return to_json(greeting);
  }

  Result<Json> open(const Json& body) {
    if (bench_) return fail("'open' twice: a worker holds one layer");
    Job job;
    MOETUNE_CHECK(from_json(body, job));
    announce(Phase::open, 0);
    MOETUNE_TRY(Layer layer, job.folder.empty()
                                 ? random_layer(job.problem, job.seed)
                                 : load_layer(job.folder, job.geometry, job.problem, job.cut(), job.layer));
    bench_.emplace(registry_, std::move(job), std::move(layer),
                   [this](Phase phase, std::size_t candidate) { announce(phase, candidate); });
    return Json::object();
  }

  Result<Json> ceilings() {
    if (!bench_) return fail("'ceilings' before 'open'");
    const Target& target = bench_->job().target;
    const Device* device = registry_.find(target.kind);
    if (device == nullptr) return fail(fmt::format("no {} support in this build", to_string(target.kind)));
    announce(Phase::ceilings, 0);
    MOETUNE_TRY(const Ceilings measured, device->measure(target));
    return to_json(measured);
  }

  Result<Json> evaluate(Op op, const Json& body) {
    if (!bench_) return fail(fmt::format("'{}' before 'open'", to_string(op)));
    EvaluateRequest request;
    MOETUNE_CHECK(from_json(body, request));
    if (request.workload.tokens < 1 || request.workload.tokens > kMostTokens)
      return fail(fmt::format("{} tokens: a call has 1 to {}", request.workload.tokens, kMostTokens));
    const std::size_t most = op == Op::evaluate ? 1 : kMostCandidates;
    if (request.candidates.empty() || request.candidates.size() > most)
      return fail(fmt::format("{} candidates: '{}' takes 1 to {}", request.candidates.size(), to_string(op), most));
    if (op == Op::race) {
      MOETUNE_TRY(const auto outcomes, bench_->race(request));
      return to_json(outcomes);
    }
    MOETUNE_TRY(const auto outcome, bench_->evaluate(request));
    return to_json(outcome);
  }

  void announce(Phase phase, std::size_t candidate) {
    PhaseEvent event;
    event.phase = phase;
    event.candidate = static_cast<std::int64_t>(candidate);
    channel_.write(dump_json(to_json(event)));
  }

  const Registry& registry_;
  LineChannel channel_;
  std::optional<Bench> bench_;
};

}  // namespace

int worker_main(const Registry& registry) {
  auto channel = LineChannel::take_standard_streams();
  if (!channel) {
    spdlog::error("worker: {}", channel.error().what);
    return 1;
  }
  return Worker(registry, std::move(*channel)).run();
}

}  // namespace moetune
