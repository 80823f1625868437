#include "faulty_backend.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "worker/test_session.h"

namespace moetune {
namespace {

void segfault() {
  ::signal(SIGSEGV, SIG_DFL);  // a sanitizer would make an exit of it
  ::raise(SIGSEGV);
}

[[noreturn]] void hang() {
  while (true) ::pause();
}

/// Descriptors of this process that are the writing ends of pipes, other than the standard ones: the line channel.
std::vector<int> pipes_to_write() {
  std::vector<int> found;
  for (int fd = STDERR_FILENO + 1; fd < 256; ++fd) {
    struct stat status {};
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) == O_WRONLY && ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode))
      found.push_back(fd);
  }
  return found;
}

void put(int fd, std::string_view text) { [[maybe_unused]] const auto done = ::write(fd, text.data(), text.size()); }

void write_endlessly(int fd) {
  const std::string part(1 << 16, 'x');
  while (true) put(fd, part);
}

void leave_a_process() {
  if (::fork() == 0) hang();
}

void allocate_without_end() {
  std::vector<std::vector<char>> all;
  while (true) all.emplace_back(std::size_t{64} << 20, 'x');
}

class FaultySession : public ReferenceSession {
 public:
  using ReferenceSession::ReferenceSession;

  Status configure(const Config& config, std::int64_t /*max_tokens*/) override {
    fault_ = static_cast<Fault>(config.get("fault"));
    us_ = static_cast<double>(config.get("us"));
    runs_ = 0;
    if (fault_ == Fault::segfaults_in_configure) segfault();
    if (fault_ == Fault::hangs_in_configure) hang();
    if (fault_ == Fault::cannot_configure) return fail("no kernel has such a tile");
    const bool third = (fault_ == Fault::crashes_in_third_configure || fault_ == Fault::throws_in_third_configure) &&
                       ++configured_ == 3;
    if (third && fault_ == Fault::crashes_in_third_configure) ::abort();
    if (third) throw std::runtime_error("configured three times");
    return {};
  }

  Status run(const Call& call) override {
    ++runs_;
    if (fault_ == Fault::writes_nothing) return {};
    MOETUNE_CHECK(misbehave());
    MOETUNE_CHECK(ReferenceSession::run(call));
    spoil(call.output);
    return {};
  }

  Result<std::vector<double>> time(std::span<const Call> calls) override {
    for (const Call& call : calls) MOETUNE_CHECK(run(call));
    const double us = fault_ == Fault::lying_clock ? std::numeric_limits<double>::quiet_NaN() : us_;
    return std::vector<double>(calls.size(), us);
  }

 private:
  Status misbehave() {
    switch (fault_) {
      case Fault::segfaults:
        segfault();
        break;
      case Fault::aborts:
        std::fputs("assertion failed: tile fits\n", stderr);
        ::abort();
      case Fault::exits:
        ::_exit(0);
      case Fault::kills_itself:
        ::raise(SIGKILL);
        break;
      case Fault::hangs:
        hang();
      case Fault::ignores_sigterm:
        ::signal(SIGTERM, SIG_IGN);
        ::signal(SIGINT, SIG_IGN);
        hang();
      case Fault::spins:
        for (volatile int i = 0;;) i = i ^ 1;
      case Fault::stops_itself:
        ::raise(SIGSTOP);
        break;
      case Fault::throws:
        throw std::runtime_error("tile does not fit");
      case Fault::throws_a_number:
        throw 42;
      case Fault::fails:
        return fail("the device refused the launch");
      case Fault::says_out_of_memory:
        return fail("no room for 40 GB", {}, ErrorKind::out_of_memory);
      default:
        make_noise();
    }
    return {};
  }

  void make_noise() {
    switch (fault_) {
      case Fault::writes_into_weights:
        *const_cast<std::byte*>(layer_.up.data.data()) = std::byte{1};
        break;
      case Fault::prints:
        std::printf("{\"id\": 1, \"ok\": true}\n");
        std::fflush(stdout);
        break;
      case Fault::prints_on_protocol:
        for (const int fd : pipes_to_write()) put(fd, "loading [=====>    ] 50 %\nno line end {");
        break;
      case Fault::endless_line:
        for (const int fd : pipes_to_write()) write_endlessly(fd);
        break;
      case Fault::floods_log:
        for (int i = 0; i < 200; ++i) put(STDERR_FILENO, std::string(10'000, 'x') + "\n");
        break;
      case Fault::closes_pipe:
        for (const int fd : pipes_to_write()) ::close(fd);
        hang();
      case Fault::leaves_a_process:
        if (runs_ == 1) leave_a_process();
        break;
      case Fault::leaves_a_process_and_dies:
        leave_a_process();
        segfault();
        break;
      case Fault::allocates_without_end:
        allocate_without_end();
        break;
      case Fault::allocates_in_a_thread:
        std::thread(allocate_without_end).join();
        break;
      default:
        break;
    }
  }

  void spoil(std::span<std::uint16_t> output) const {
    switch (fault_) {
      case Fault::answers_nan:
        output[output.size() / 2] = 0x7FC0;
        break;
      case Fault::answers_wrongly:
        for (auto& value : output) value = float_to_bf16(1.1F * bf16_to_float(value));
        break;
      case Fault::one_value_wrong:
        output[output.size() - 1] = float_to_bf16(4.0F + bf16_to_float(output[output.size() - 1]));
        break;
      case Fault::right_once:
        if (runs_ > 1) output[0] = float_to_bf16(4.0F + bf16_to_float(output[0]));
        break;
      case Fault::writes_beside:
        *(output.data() + output.size()) = 0;
        break;
      default:
        break;
    }
  }

  Fault fault_ = Fault::none;
  double us_ = 1;
  int runs_ = 0;        ///< since configure
  int configured_ = 0;  ///< with a fault that counts
};

class FaultyBackend : public Backend {
 public:
  explicit FaultyBackend(std::string_view name) : name_(name) {}

  std::string id() const override { return "test:" + name_; }
  std::string summary() const override { return "misbehaves as it is told"; }
  std::string revision() const override { return "1"; }
  Reasons why_not(const Problem&, const Target&) const override {
    if (name_ == "dies_in_why_not") segfault();
    if (name_ == "refuses")
      return {{ReasonCode::shape, "hidden 64", "a multiple of 128", "", "tests"},
              {ReasonCode::arch, "this one", "another", "", "tests"}};
    return {};
  }
  Space space(const Problem&, const Target&, std::int64_t) const override { return {}; }
  Config default_config(const Problem&, const Target&, std::int64_t) const override {
    return faulty_config(Fault::none, 1000);
  }
  Result<std::unique_ptr<Session>> open(const Problem& problem, const Layer& layer, const Target&) const override {
    if (name_ == "dies_in_open") segfault();
    return std::make_unique<FaultySession>(problem, layer);
  }

 private:
  std::string name_;
};

}  // namespace

Registry faulty_registry() {
  Registry registry;
  for (const char* name : {"faulty", "dies_in_open", "dies_in_why_not", "refuses"})
    registry.add(std::make_unique<FaultyBackend>(name));
  return registry;
}

Config faulty_config(Fault fault, std::int64_t us) {
  return {{{"fault", static_cast<std::int64_t>(fault)}, {"us", us}}};
}

}  // namespace moetune
