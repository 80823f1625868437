// A child process that is talked to by lines, watched, and never left behind.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// Leads a process group of its own, so that what it starts ends with it, and is killed when the thread that started it
/// ends. Move-only; destroying it kills the group.
class Subprocess {
 public:
  enum class Read { line, timed_out, closed, too_long };

  /// argv[0] is a path. The child's standard input and output are the line channel, its standard error is kept as log.
  [[nodiscard]] static Result<Subprocess> start(const std::vector<std::string>& argv, SubprocessOptions options = {});
  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  ~Subprocess();

  /// Sends the text and a line end. Fails, and says so, where the child has gone.
  [[nodiscard]] Status write_line(std::string_view text);
  /// The next line of its standard output, without the line end, waiting at most `seconds`. Collects standard error
  /// meanwhile.
  [[nodiscard]] Read read_line(std::string& line, double seconds);
  /// Kills the group and reaps the child; afterwards `ending` says how it ended.
  void kill();
  /// Waits at most `seconds` for it to end by itself; whether it did.
  [[nodiscard]] bool wait(double seconds);
  /// "exit code 3" or "killed by signal 11 (Segmentation fault)"; empty while it runs.
  [[nodiscard]] const std::string& ending() const { return ending_; }
  /// The signal that ended it, 0 where none did.
  [[nodiscard]] int signal() const { return signal_; }
  /// The end of what it wrote to standard error.
  [[nodiscard]] const std::string& log() const { return log_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  Subprocess() = default;
  void drain_log();
  void close_all();
  void reaped(int status);

  SubprocessOptions options_;
  pid_t pid_ = -1;
  bool running_ = false;
  int in_ = -1, out_ = -1, err_ = -1;
  std::string buffer_, log_, ending_;
  std::size_t scanned_ = 0;  // of buffer_, known to hold no line end
  int signal_ = 0;
};

/// The path of the program that is running.
[[nodiscard]] std::string own_path();

}  // namespace moetune
