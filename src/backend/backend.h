// An implementation of the MoE layer: ours (`moetune:…`) or anybody's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arch/target.h"
#include "backend/config.h"
#include "base/error.h"
#include "base/reason.h"
#include "measure/floor.h"
#include "model/layer.h"
#include "model/problem.h"
#include "moe/routing.h"

namespace moetune {

/// One call of the layer, on the host. input: bf16 [tokens, H]; output: bf16 [tokens, H], written whole.
struct Call {
  std::span<const std::uint16_t> input;
  const Routing* routing = nullptr;
  std::span<std::uint16_t> output;
};

/// A backend with weights loaded, and after configure() ready to run. Not thread-safe; lives in a worker process.
class Session {
 public:
  virtual ~Session() = default;

  /// Chooses a config and prepares for calls of up to max_tokens: compiles, repacks, allocates. An Error leaves the
  /// session usable.
  [[nodiscard]] virtual Status configure(const Config& config, std::int64_t max_tokens) = 0;

  /// Runs one call to completion.
  [[nodiscard]] virtual Status run(const Call& call) = 0;

  /// Microseconds of each of the calls, run in order once. A device overrides this to use its own clock and no host in
  /// between. The last call's output is there afterwards as after run(), so that this path is checked as well.
  [[nodiscard]] virtual Result<std::vector<double>> time(std::span<const Call> calls);
};

/// Why the layer's weights do not fit the target's memory; nothing where they do or the target's is not known.
/// `source`: the file that asks, as in Reason.
[[nodiscard]] std::optional<Reason> memory_reason(const Problem& problem, const Target& target,
                                                  std::string_view source);

class Backend {
 public:
  virtual ~Backend() = default;

  /// "owner:name".
  [[nodiscard]] virtual std::string id() const = 0;
  /// One line for people: what it does and when it is the right one.
  [[nodiscard]] virtual std::string summary() const = 0;
  /// Changes whenever results of this backend may change: part of what a stored result is filed under.
  [[nodiscard]] virtual std::string revision() const = 0;
  /// Everything that keeps it from running this layer on this target; empty means it can.
  [[nodiscard]] virtual Reasons why_not(const Problem& problem, const Target& target) const = 0;
  /// Builds what the default configs need for this layer and target, with no such device at hand, and holds it against
  /// the target's limits: everything that failed, empty where all is well. Nothing: there is nothing to build, or no
  /// compiler here. Asked only where why_not is empty; takes seconds.
  [[nodiscard]] virtual std::optional<Reasons> compile(const Problem& /*problem*/, const Target& /*target*/) const {
    return std::nullopt;
  }
  /// What can be tuned for calls of that many tokens. Asked only where why_not is empty.
  [[nodiscard]] virtual Space space(const Problem& problem, const Target& target, std::int64_t tokens) const = 0;
  /// Whether this backend is the natural choice for calls of that many tokens, where several of one owner share the
  /// range. The first registered one that says yes is the default.
  [[nodiscard]] virtual bool prefers(const Problem& /*problem*/, const Target& /*target*/,
                                     std::int64_t /*tokens*/) const {
    return true;
  }
  /// The config used without tuning: in the space, and always a candidate.
  [[nodiscard]] virtual Config default_config(const Problem& problem, const Target& target,
                                              std::int64_t tokens) const = 0;
  /// Loads the weights; `layer` outlives the session.
  [[nodiscard]] virtual Result<std::unique_ptr<Session>> open(const Problem& problem, const Layer& layer,
                                                              const Target& target) const = 0;
};

/// A kind of place that backends run on: finds the targets of this machine and measures their ceilings.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual TargetKind kind() const = 0;
  [[nodiscard]] virtual std::vector<Target> targets() const = 0;
  /// Takes seconds; runs in a worker.
  [[nodiscard]] virtual Result<Ceilings> measure(const Target& target) const = 0;
};

/// All backends and devices that a binary has. Filled by register_all (cli/) or by a test; passed, never global.
class Registry {
 public:
  void add(std::unique_ptr<Backend> backend) { backends_.push_back(std::move(backend)); }
  void add(std::unique_ptr<Device> device) { devices_.push_back(std::move(device)); }
  [[nodiscard]] std::span<const std::unique_ptr<Backend>> backends() const { return backends_; }
  [[nodiscard]] std::span<const std::unique_ptr<Device>> devices() const { return devices_; }
  /// The backend of that id, or null.
  [[nodiscard]] const Backend* find(std::string_view id) const;
  [[nodiscard]] const Device* find(TargetKind kind) const;

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace moetune
