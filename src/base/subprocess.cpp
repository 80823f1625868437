#include "base/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace moetune {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr double kLookS = 0.05;    // how long the end of a child whose pipe somebody else holds open may go unnoticed
constexpr double kKernelS = 30;    // a process in an uninterruptible call ends late, not never
constexpr int kLogReads = 64;      // a child that floods its log does not keep the parent from reading its lines
constexpr int kCannotStart = 127;  // the exit code that shells use for the same

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool open() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read, write;

  /// Both ends are above the standard descriptors, which the child puts its own in the place of.
  static Result<Pipe> make() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    Pipe pipe{Descriptor(ends[0]), Descriptor(ends[1])};
    for (Descriptor* end : {&pipe.read, &pipe.write}) {
      if (end->get() > STDERR_FILENO) continue;
      *end = Descriptor(::fcntl(end->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
      if (!end->open()) return fail(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    }
    return pipe;
  }
};

struct ChildPlan {
  char* const* argv = nullptr;
  int in = -1, out = -1, err = -1;
  int failure = -1;  ///< takes errno where the program cannot be started; closed by a start that works
  pid_t parent = -1;
  rlim_t memory_limit = 0;
};

/// What the child does between fork and exec: only calls that are safe there.
[[noreturn]] void become(const ChildPlan& plan) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(kCannotStart);  // the parent went away before the line above
  ::dup2(plan.in, STDIN_FILENO);
  ::dup2(plan.out, STDOUT_FILENO);
  ::dup2(plan.err, STDERR_FILENO);
  // Whatever a library of the parent left without the flag. By number, for C libraries older than the call.
  constexpr unsigned kCloseOnExec = 1U << 2;
  ::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, kCloseOnExec);
  if (plan.memory_limit != 0) {
    const rlimit limit{plan.memory_limit, plan.memory_limit};
    ::setrlimit(RLIMIT_AS, &limit);
  }
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);  // of those that can be, also if ignored
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execv(plan.argv[0], plan.argv);
  const int why = errno;
  [[maybe_unused]] const auto put = ::write(plan.failure, &why, sizeof(why));
  ::_exit(kCannotStart);
}

/// errno of a start that did not work, 0 of one that did. The descriptor is the only one left of its kind, so that it
/// ends when the child has become its program.
int start_failure(const Descriptor& failure) {
  int why = 0;
  ssize_t got = 0;
  do {
    got = ::read(failure.get(), &why, sizeof(why));
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof(why)) ? why : 0;
}

/// How the child ended, as waitpid says it; nothing where the system has already forgotten.
std::optional<int> reap(pid_t pid) {
  int status = 0;
  pid_t got = 0;
  do {
    got = ::waitpid(pid, &status, 0);
  } while (got < 0 && errno == EINTR);
  return got == pid ? std::optional(status) : std::nullopt;
}

/// A write of this thread to a pipe that nobody reads fails with EPIPE and raises no signal meanwhile.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    foreign_ = sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  ~NoSigpipe() {
    const timespec now{};
    if (!foreign_)
      while (::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{}, before_{};
  bool foreign_ = false;  ///< one was waiting before and is not ours to take
};

}  // namespace

struct Subprocess::State {
  SubprocessOptions options;
  pid_t pid = -1;
  bool running = false;
  Descriptor in, out, err;
  std::string lines;  ///< of standard output, not handed out yet
  std::string log, ending;
  std::size_t scanned = 0;  ///< of `lines`, known to hold no line end
  int signal = 0;

  /// Waits until there is something to read, or room to write where `writing`, at most `seconds`; reads it.
  void exchange(double seconds, bool writing);
  void read_output();
  void read_log();
  /// Whether the child has ended; it is not reaped, so that its number stays its own.
  [[nodiscard]] bool ended() const;
  /// Of a child that has ended: kills what is left of its group, reaps it and notes how it ended.
  void bury();
  [[nodiscard]] bool wait(double seconds);
  void kill();
};

void Subprocess::State::exchange(double seconds, bool writing) {
  const bool reading = out.open() && lines.size() <= options.max_line_bytes;
  std::array<pollfd, 3> ready{};
  nfds_t count = 0;
  if (reading) ready[count++] = {out.get(), POLLIN, 0};
  if (err.open()) ready[count++] = {err.get(), POLLIN, 0};
  if (writing) ready[count++] = {in.get(), POLLOUT, 0};
  ::poll(ready.data(), count, static_cast<int>(std::ceil(std::clamp(seconds, 0.0, kLookS) * 1e3)));
  if (reading) read_output();
  read_log();  // after the output, so that what was logged before a line is there with the line
}

void Subprocess::State::read_output() {
  std::array<char, kReadBytes> chunk;
  const auto got = ::read(out.get(), chunk.data(), chunk.size());
  if (got > 0) lines.append(chunk.data(), static_cast<std::size_t>(got));
  if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) out.close();
}

void Subprocess::State::read_log() {
  std::array<char, 4096> chunk;
  for (int i = 0; i < kLogReads && err.open(); ++i) {
    const auto got = ::read(err.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) err.close();
    if (got <= 0) break;
    log.append(chunk.data(), static_cast<std::size_t>(got));
    if (log.size() > 2 * options.log_bytes) log.erase(0, log.size() - options.log_bytes);
  }
}

bool Subprocess::State::ended() const {
  siginfo_t info{};
  const int got = ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
  return got == 0 ? info.si_pid == pid : errno == ECHILD;
}

void Subprocess::State::bury() {
  ::kill(-pid, SIGKILL);
  const std::optional<int> status = reap(pid);
  running = false;
  if (!status) {
    ending = "ended, and how is not known";
  } else if (WIFSIGNALED(*status)) {
    signal = WTERMSIG(*status);
    ending = fmt::format("killed by signal {} ({})", signal, ::strsignal(signal));
  } else {
    ending = fmt::format("exit code {}", WEXITSTATUS(*status));
  }
  read_log();
}

bool Subprocess::State::wait(double seconds) {
  const double deadline = now_s() + seconds;
  while (running && !ended()) {
    const double left = deadline - now_s();
    if (left <= 0) return false;
    constexpr double kWaitS = 0.002;  // nothing wakes the poll where the child has closed its pipes
    exchange(std::min(left, kWaitS), false);
  }
  if (running) bury();
  return true;
}

void Subprocess::State::kill() {
  if (!running) return;
  ::kill(-pid, SIGKILL);
  ::kill(pid, SIGKILL);  // also where it has left its group
  if (wait(kKernelS)) return;
  running = false;  // not waited for again
  ending = fmt::format("does not end within {} s of SIGKILL", kKernelS);
}

Result<Subprocess> Subprocess::start(const std::vector<std::string>& argv, SubprocessOptions options) {
  if (argv.empty()) return fail("no program to start");
  std::vector<char*> pointers;
  for (const auto& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  MOETUNE_TRY(Pipe in, Pipe::make());
  MOETUNE_TRY(Pipe out, Pipe::make());
  MOETUNE_TRY(Pipe err, Pipe::make());
  MOETUNE_TRY(Pipe failure, Pipe::make());
  auto state = std::make_unique<State>();
  ChildPlan plan;
  plan.argv = pointers.data();
  plan.in = in.read.get();
  plan.out = out.write.get();
  plan.err = err.write.get();
  plan.failure = failure.write.get();
  plan.parent = ::getpid();
  plan.memory_limit = static_cast<rlim_t>(std::max<std::int64_t>(options.memory_limit_bytes, 0));
  const pid_t pid = ::fork();
  if (pid == 0) become(plan);
  if (pid < 0) return fail(fmt::format("cannot start {}: {}", argv.front(), std::strerror(errno)));
  failure.write.close();
  if (const int why = start_failure(failure.read); why != 0) {
    (void)reap(pid);
    return fail(fmt::format("cannot start {}: {}", argv.front(), std::strerror(why)));
  }
  state->options = options;
  state->pid = pid;
  state->running = true;
  state->in = std::move(in.write);
  state->out = std::move(out.read);
  state->err = std::move(err.read);
  for (const Descriptor* end : {&state->in, &state->out, &state->err}) ::fcntl(end->get(), F_SETFL, O_NONBLOCK);
  return Subprocess(std::move(state));
}

Subprocess::Subprocess(std::unique_ptr<State> state) : state_(std::move(state)) {}
Subprocess::Subprocess(Subprocess&& other) noexcept = default;
Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  if (this == &other) return *this;
  if (state_ != nullptr) state_->kill();
  state_ = std::move(other.state_);
  return *this;
}
Subprocess::~Subprocess() {
  if (state_ != nullptr) state_->kill();
}

Status Subprocess::write_line(std::string_view text, double seconds) {
  const std::string line = std::string(text) + '\n';
  std::string_view left = line;
  const double deadline = now_s() + seconds;
  const NoSigpipe no_signal;
  while (true) {
    const auto put = ::write(state_->in.get(), left.data(), left.size());
    if (put > 0) left.remove_prefix(static_cast<std::size_t>(put));
    if (left.empty()) return {};
    if (put < 0 && errno != EINTR && errno != EAGAIN)
      return fail(fmt::format("cannot write to the child: {}", std::strerror(errno)));
    if (put < 0 && now_s() >= deadline) return fail(fmt::format("the child read nothing for {:.3g} s", seconds));
    if (put < 0) state_->exchange(deadline - now_s(), true);
  }
}

Subprocess::Read Subprocess::read_line(std::string& line, double seconds) {
  State& child = *state_;
  const double deadline = now_s() + seconds;
  while (true) {
    if (const auto end = child.lines.find('\n', child.scanned); end != std::string::npos) {
      line = child.lines.substr(0, end);
      child.lines.erase(0, end + 1);
      child.scanned = 0;
      return Read::line;
    }
    child.scanned = child.lines.size();
    if (child.lines.size() > child.options.max_line_bytes) return Read::too_long;
    if (!child.out.open()) return Read::closed;
    const double left = deadline - now_s();
    if (left <= 0) return Read::timed_out;
    const bool over = !child.running || child.ended();
    child.exchange(over ? 0 : left, false);
    // What it had said is read; a pipe that is still open is held by what it started.
    if (over && child.scanned == child.lines.size()) child.out.close();
  }
}

void Subprocess::kill() { state_->kill(); }
bool Subprocess::wait(double seconds) { return state_->wait(seconds); }
const std::string& Subprocess::ending() const { return state_->ending; }
int Subprocess::signal() const { return state_->signal; }
pid_t Subprocess::pid() const { return state_->pid; }
std::string Subprocess::log() const {
  const std::string& log = state_->log;
  return log.substr(log.size() - std::min(log.size(), state_->options.log_bytes));
}
void Subprocess::clear_log() {
  state_->read_log();
  state_->log.clear();
}

std::string own_path() {
  constexpr const char* kSelf = "/proc/self/exe";
  std::error_code problem;
  const auto path = std::filesystem::read_symlink(kSelf, problem);
  return problem || !std::filesystem::exists(path, problem) ? kSelf : path.string();
}

}  // namespace moetune
