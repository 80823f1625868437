#include "worker/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <optional>

#include "base/log.h"
#include "model/layer.h"
#include "moe/reference.h"
#include "worker/bench.h"
#include "worker/protocol.h"

namespace moetune {
namespace {

/// The line channel, kept apart from what the process prints.
class Channel {
 public:
  Channel() : fd_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)) { ::dup2(STDERR_FILENO, STDOUT_FILENO); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() { ::close(fd_); }

  void send(const Json& json) {
    const std::string line = dump_json(json) + "\n";
    for (std::size_t done = 0; done < line.size();) {
      const auto put = ::write(fd_, line.data() + done, line.size() - done);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) ::_exit(1);  // nobody listens any more
      done += static_cast<std::size_t>(put);
    }
  }

 private:
  int fd_;
};

class Worker {
 public:
  explicit Worker(const Registry& registry) : registry_(registry) {}

  int run() {
    std::string line;
    while (std::getline(std::cin, line)) {
      auto request = parse_json(line);
      if (!request || !request->is_object()) {
        channel_.send({{"id", nullptr}, {"ok", false}, {"error", "the request is not a JSON object"}});
        continue;
      }
      const Json id = request->value("id", Json());
      const std::string op =
          request->contains("op") && (*request)["op"].is_string() ? (*request)["op"].get<std::string>() : "";
      if (op == "quit") return 0;
      auto result = answer(op, request->value(op, Json::object()));
      if (result)
        channel_.send({{"id", id}, {"ok", true}, {"result", *result}});
      else
        channel_.send({{"id", id},
                       {"ok", false},
                       {"error", result.error().what},
                       {"hints", result.error().hints},
                       {"out_of_memory", result.error().kind == ErrorKind::out_of_memory}});
    }
    return 0;
  }

 private:
  Result<Json> answer(const std::string& op, const Json& body) {
    if (op == "hello") return hello();
    if (op == "open") return open(body);
    if (op == "ceilings") return ceilings();
    if (op == "evaluate" || op == "race") return evaluate(op == "race", body);
    return fail(fmt::format("unknown request '{}'", op.substr(0, 40)));
  }

  Result<Json> hello() const {
    Greeting greeting;
    greeting.version = MOETUNE_VERSION;
    for (const auto& backend : registry_.backends()) greeting.backends.push_back(backend->id());
    return to_json(greeting);
  }

  Result<Json> open(const Json& body) {
    Job job;
    MOETUNE_CHECK(from_json(body, job));
    phase("open");
    MOETUNE_TRY(Layer layer, job.folder.empty()
                                 ? random_layer(job.problem, job.seed)
                                 : load_layer(job.folder, job.geometry, job.problem, job.cut(), job.layer));
    bench_.emplace(registry_, std::move(job), std::move(layer), [this](std::string_view name) { phase(name); });
    return Json::object();
  }

  Result<Json> ceilings() {
    if (!bench_) return fail("'ceilings' before 'open'");
    const Target& target = bench_->job().target;
    const Device* device = registry_.find(target.kind);
    if (device == nullptr) return fail(fmt::format("no {} support in this build", to_string(target.kind)));
    phase("ceilings");
    MOETUNE_TRY(const Ceilings measured, device->measure(target));
    return to_json(measured);
  }

  Result<Json> evaluate(bool race, const Json& body) {
    if (!bench_) return fail("'evaluate' before 'open'");
    MOETUNE_TRY(const EvaluateRequest request, read_request(body));
    if (race) return to_json(bench_->race(request));
    return to_json(bench_->evaluate(request));
  }

  static Result<EvaluateRequest> read_request(const Json& body) {
    EvaluateRequest request;
    MOETUNE_CHECK(from_json(body, request));
    if (request.candidates.empty()) return fail("no candidates");
    return request;
  }

  void phase(std::string_view name) { channel_.send({{"phase", name}}); }

  const Registry& registry_;
  Channel channel_;
  std::optional<Bench> bench_;
};

}  // namespace

int worker_main(const Registry& registry) { return Worker(registry).run(); }

}  // namespace moetune
