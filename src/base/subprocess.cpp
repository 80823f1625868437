#include "base/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace moetune {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

/// What the child does between fork and exec: only calls that are safe there.
[[noreturn]] void become(char* const* argv, int in, int out, int err, pid_t parent, rlim_t memory_limit) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent went away before the line above
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (memory_limit != 0) {
    const rlimit limit{memory_limit, memory_limit};
    ::setrlimit(RLIMIT_AS, &limit);
  }
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execv(argv[0], argv);
  ::_exit(127);
}

}  // namespace

Result<Subprocess> Subprocess::start(const std::vector<std::string>& argv, SubprocessOptions options) {
  std::vector<char*> pointers;
  for (const auto& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  std::array<std::array<int, 2>, 3> pipes{{{-1, -1}, {-1, -1}, {-1, -1}}};
  Subprocess child;
  child.options_ = options;
  for (auto& pipe : pipes)
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
      for (auto& made : pipes)
        for (int& fd : made) close_fd(fd);
      return fail(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    }
  const pid_t parent = ::getpid();
  child.pid_ = ::fork();
  if (child.pid_ == 0)
    become(pointers.data(), pipes[0][0], pipes[1][1], pipes[2][1], parent,
           static_cast<rlim_t>(options.memory_limit_bytes));
  const int fork_errno = errno;
  close_fd(pipes[0][0]);
  close_fd(pipes[1][1]);
  close_fd(pipes[2][1]);
  child.in_ = pipes[0][1];
  child.out_ = pipes[1][0];
  child.err_ = pipes[2][0];
  if (child.pid_ < 0) {
    child.close_all();
    return fail(fmt::format("cannot start {}: {}", argv.front(), std::strerror(fork_errno)));
  }
  ::setpgid(child.pid_, child.pid_);  // also here, so that it holds before the first kill
  for (const int fd : {child.in_, child.out_, child.err_}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  child.running_ = true;
  return child;
}

Subprocess::Subprocess(Subprocess&& other) noexcept { *this = std::move(other); }

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  std::swap(options_, other.options_);
  std::swap(pid_, other.pid_);
  std::swap(running_, other.running_);
  std::swap(in_, other.in_);
  std::swap(out_, other.out_);
  std::swap(err_, other.err_);
  std::swap(buffer_, other.buffer_);
  std::swap(log_, other.log_);
  std::swap(ending_, other.ending_);
  std::swap(scanned_, other.scanned_);
  std::swap(signal_, other.signal_);
  return *this;
}

Subprocess::~Subprocess() {
  kill();
  close_all();
}

void Subprocess::close_all() {
  close_fd(in_);
  close_fd(out_);
  close_fd(err_);
}

Status Subprocess::write_line(std::string_view text) {
  std::string line(text);
  line += '\n';
  std::string_view left = line;
  constexpr double kPatienceS = 10;
  const double give_up = now_s() + kPatienceS;
  // A broken pipe is an answer here, not a signal.
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  Status status;
  while (!left.empty()) {
    const auto put = ::write(in_, left.data(), left.size());
    if (put > 0) {
      left.remove_prefix(static_cast<std::size_t>(put));
    } else if (put < 0 && errno == EINTR) {
      continue;
    } else if (put < 0 && errno == EAGAIN && now_s() < give_up) {
      pollfd ready{in_, POLLOUT, 0};
      ::poll(&ready, 1, 100);
    } else {
      status = fail(
          fmt::format("cannot write to the child: {}", errno == EAGAIN ? "it does not read" : std::strerror(errno)));
      break;
    }
  }
  ::sigaction(SIGPIPE, &before, nullptr);
  return status;
}

void Subprocess::drain_log() {
  std::array<char, 4096> chunk;
  // Bounded, so that a child that floods its log cannot keep the parent here.
  for (int i = 0; i < 64 && err_ >= 0; ++i) {
    const auto got = ::read(err_, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) close_fd(err_);
    if (got <= 0) break;
    log_.append(chunk.data(), static_cast<std::size_t>(got));
    if (log_.size() > 2 * options_.log_bytes) log_.erase(0, log_.size() - options_.log_bytes);
  }
}

Subprocess::Read Subprocess::read_line(std::string& line, double seconds) {
  const double deadline = now_s() + seconds;
  std::string chunk(kReadBytes, '\0');
  while (true) {
    if (const auto end = buffer_.find('\n', scanned_); end != std::string::npos) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      scanned_ = 0;
      return Read::line;
    }
    scanned_ = buffer_.size();
    if (buffer_.size() > options_.max_line_bytes) return Read::too_long;
    if (out_ < 0) return Read::closed;
    const double left = deadline - now_s();
    if (left <= 0) return Read::timed_out;
    std::array<pollfd, 2> ready{{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
    ::poll(ready.data(), err_ >= 0 ? 2 : 1, static_cast<int>(std::min(left * 1e3 + 1, 200.0)));
    drain_log();
    const auto got = ::read(out_, chunk.data(), chunk.size());
    if (got > 0) buffer_.append(chunk.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) close_fd(out_);
  }
}

void Subprocess::reaped(int status) {
  running_ = false;
  if (WIFSIGNALED(status)) {
    signal_ = WTERMSIG(status);
    ending_ = fmt::format("killed by signal {} ({})", signal_, ::strsignal(signal_));
  } else {
    ending_ = fmt::format("exit code {}", WEXITSTATUS(status));
  }
}

bool Subprocess::wait(double seconds) {
  const double deadline = now_s() + seconds;
  while (running_) {
    int status = 0;
    const pid_t got = ::waitpid(pid_, &status, WNOHANG);
    if (got == pid_) {
      reaped(status);
    } else if (got < 0 && errno != EINTR) {
      running_ = false;
    } else if (now_s() >= deadline) {
      return false;
    } else {
      drain_log();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  drain_log();
  return true;
}

void Subprocess::kill() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);  // what the child started is in its group and goes too, also after the child itself has ended
  if (!running_) return;
  constexpr double kKernelS = 30;  // a process in an uninterruptible call ends late, not never
  if (!wait(kKernelS)) ending_ = "does not end after SIGKILL";
}

std::string own_path() {
  std::error_code problem;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", problem);
  return problem ? std::string("moetune") : path.string();
}

}  // namespace moetune
