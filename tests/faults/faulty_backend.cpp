#include "faulty_backend.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "formats/convert.h"
#include "moe/reference.h"

namespace moetune {
namespace {

constexpr std::array<Fault, 15> kFaults = {{{"segfault", OutcomeStatus::crashed},
                                            {"abort", OutcomeStatus::crashed},
                                            {"exit", OutcomeStatus::crashed},
                                            {"throw", OutcomeStatus::crashed},
                                            {"hang", OutcomeStatus::timed_out},
                                            {"hang_ignoring_signals", OutcomeStatus::timed_out},
                                            {"error", OutcomeStatus::launch_failed},
                                            {"configure_error", OutcomeStatus::launch_failed},
                                            {"open_error", OutcomeStatus::launch_failed},
                                            {"nan", OutcomeStatus::nan},
                                            {"unwritten", OutcomeStatus::nan},
                                            {"wrong", OutcomeStatus::wrong_result},
                                            {"right_only_once", OutcomeStatus::wrong_result},
                                            {"out_of_memory", OutcomeStatus::out_of_memory},
                                            {"refuses", OutcomeStatus::unsupported}}};

class FaultySession : public Session {
 public:
  FaultySession(std::string name, const Problem& problem, const Layer& layer)
      : name_(std::move(name)), problem_(problem), layer_(layer) {}

  Status configure(const Config& /*config*/, std::int64_t /*max_tokens*/) override {
    if (name_ == "configure_error") return fail("configured to fail");
    return {};
  }

  Status run(const Call& call) override {
    ++calls_;
    std::puts("a library that prints on standard output");
    std::fflush(stdout);
    if (name_ == "segfault") std::raise(SIGSEGV);
    if (name_ == "abort") std::abort();
    if (name_ == "exit") std::_Exit(0);
    if (name_ == "throw") throw std::runtime_error("thrown on purpose");
    if (name_ == "error") return fail("failed on purpose");
    if (name_ == "hang_ignoring_signals")
      for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
    if (name_.starts_with("hang"))
      while (true) ::pause();
    if (name_ == "out_of_memory") throw std::bad_alloc();
    if (name_ == "unwritten") return {};
    if (name_ == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(2));
    MOETUNE_TRY(const auto values, reference_layer(problem_, layer_, call.input, *call.routing));
    for (std::size_t i = 0; i < values.size(); ++i) call.output[i] = float_to_bf16(values[i]);
    if (name_ == "nan") call.output.back() = 0x7FC0;
    if (name_ == "wrong" || (name_ == "right_only_once" && calls_ > 1))
      for (auto& value : call.output) value = static_cast<std::uint16_t>(value ^ 0x8000U);
    return {};
  }

 private:
  std::string name_;
  Problem problem_;
  const Layer& layer_;
  int calls_ = 0;
};

class FaultyBackend : public Backend {
 public:
  explicit FaultyBackend(std::string_view name) : name_(name) {}
  [[nodiscard]] std::string id() const override { return "test:" + name_; }
  [[nodiscard]] std::string summary() const override { return "goes wrong on purpose: " + name_; }
  [[nodiscard]] std::string revision() const override { return "1"; }
  [[nodiscard]] Reasons why_not(const Problem& /*problem*/, const Target& /*target*/) const override {
    if (name_ == "refuses")
      return {{ReasonCode::shape, "this shape", "another one", "", "tests"},
              {ReasonCode::arch, "here", "elsewhere", "", "tests"}};
    return {};
  }
  [[nodiscard]] Space space(const Problem& /*problem*/, const Target& /*target*/,
                            std::int64_t /*tokens*/) const override {
    return {{{"n", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "nothing"}}, {}};
  }
  [[nodiscard]] Config default_config(const Problem& /*problem*/, const Target& /*target*/,
                                      std::int64_t /*tokens*/) const override {
    return {{{"n", 0}}};
  }
  [[nodiscard]] Result<std::unique_ptr<Session>> open(const Problem& problem, const Layer& layer,
                                                      const Target& /*target*/) const override {
    if (name_ == "open_error") return fail("opened to fail");
    return std::make_unique<FaultySession>(name_, problem, layer);
  }

 private:
  std::string name_;
};

}  // namespace

std::span<const Fault> faults() { return kFaults; }

void register_faulty(Registry& registry) {
  registry.add(std::make_unique<FaultyBackend>("right"));
  registry.add(std::make_unique<FaultyBackend>("slow"));
  for (const auto& fault : kFaults) registry.add(std::make_unique<FaultyBackend>(fault.name));
}

}  // namespace moetune
