// A child process that is talked to by lines, watched, and never left behind.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace moetune {

struct SubprocessOptions {
  std::int64_t memory_limit_bytes = 0;                 ///< address space of the child (RLIMIT_AS); 0: no limit
  std::size_t max_line_bytes = std::size_t{16} << 20;  ///< a longer line is garbage
  std::size_t log_bytes = std::size_t{64} << 10;       ///< how much of the end of its standard error is kept
};

/// Leads a process group of its own, so that what it starts ends with it; only what leaves that group (setsid) is out
/// of reach. The system kills the child, though not what the child started, when the *thread* that called start()
/// ends, kill -9 included: start it from a thread that lives as long as the child should. Inherits no descriptors but
/// its three, no ignored signals and no core dumps. Move-only; destroying it kills the group.
class Subprocess {
 public:
  enum class Read {
    line,
    timed_out,
    closed,   ///< no more lines: it ended or closed its standard output
    too_long  ///< more than max_line_bytes without a line end
  };

  /// argv[0] is a path. The child's standard input and output are the line channel, its standard error is kept as log.
  /// Errors: what the system says about the pipes, the fork or the program.
  [[nodiscard]] static Result<Subprocess> start(const std::vector<std::string>& argv, SubprocessOptions options = {});
  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  ~Subprocess();

  /// Sends the text and a line end, reading meanwhile what the child says. Fails where the child has gone or takes
  /// longer than `seconds` to read.
  [[nodiscard]] Status write_line(std::string_view text, double seconds = 10);
  /// The next line of its standard output, without the line end, waiting at most `seconds`. Collects standard error
  /// meanwhile.
  [[nodiscard]] Read read_line(std::string& line, double seconds);
  /// Kills the group and reaps the child; afterwards `ending` says how it ended.
  void kill();
  /// Waits at most `seconds` for the child to end by itself; whether it did. What it left of its group is killed then.
  [[nodiscard]] bool wait(double seconds);
  /// "exit code 3" or "killed by signal 11 (Segmentation fault)"; empty while it runs.
  [[nodiscard]] const std::string& ending() const;
  /// The signal that ended it, 0 where none did.
  [[nodiscard]] int signal() const;
  /// The last log_bytes of what it wrote to standard error, up to the last line that was read at least.
  [[nodiscard]] std::string log() const;
  /// Forgets the log so far.
  void clear_log();
  [[nodiscard]] pid_t pid() const;

 private:
  struct State;
  explicit Subprocess(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A path that starts the program that is running, also when its file was replaced since.
[[nodiscard]] std::string own_path();

}  // namespace moetune
