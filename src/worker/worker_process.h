// One worker, from its start to its end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/outcome.h"
#include "base/error.h"
#include "base/subprocess.h"
#include "worker/deadlines.h"
#include "worker/protocol.h"

namespace moetune {

/// Why a request has no reply. The process has ended by then.
struct Loss {
  OutcomeStatus status = OutcomeStatus::crashed;  ///< crashed, timed_out, out_of_memory, or skipped: interrupted
  std::string diagnosis;
  std::string log;             ///< what the worker printed since the request
  std::optional<Phase> phase;  ///< announced last for this request
  std::size_t candidate = 0;   ///< whose turn it was
};

/// Asks one request at a time and takes whatever comes back. Move-only; destroying it kills the process and its group.
class WorkerProcess {
 public:
  using Answer = tl::expected<Reply, Loss>;

  [[nodiscard]] static Result<WorkerProcess> start(const std::vector<std::string>& argv,
                                                   const SubprocessOptions& options);

  /// Waits as the clock says; gives up within a fraction of a second where `stop` (may be null) becomes true. After a
  /// Loss nothing can be asked any more.
  [[nodiscard]] Answer ask(Op op, Json body, PhaseClock clock, const std::atomic<bool>* stop);
  /// What it printed since the last request.
  [[nodiscard]] std::string log() const { return process_.log(); }

 private:
  explicit WorkerProcess(Subprocess process) : process_(std::move(process)) {}

  /// The reply that the line is; nothing where it is something else.
  [[nodiscard]] tl::expected<std::optional<Reply>, Loss> read(const std::string& line, PhaseClock& clock);
  [[nodiscard]] tl::unexpected<Loss> lose(OutcomeStatus status, const std::string& what, const PhaseClock& clock);
  [[nodiscard]] tl::unexpected<Loss> died(const PhaseClock& clock);

  Subprocess process_;
  std::int64_t id_ = 0;
  std::size_t candidate_ = 0;
  int noise_ = 0;  ///< lines of this request that were no protocol
};

}  // namespace moetune
