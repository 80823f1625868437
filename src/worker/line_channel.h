// The worker's end of the line channel.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace moetune {

/// Lines from what was standard input and to what was standard output when it was made, kept apart from what the
/// process reads and prints: from then on standard input is empty, and standard output is standard error.
class LineChannel {
 public:
  [[nodiscard]] static Result<LineChannel> take_standard_streams();
  LineChannel(LineChannel&& other) noexcept;
  LineChannel& operator=(LineChannel&&) = delete;
  LineChannel(const LineChannel&) = delete;
  LineChannel& operator=(const LineChannel&) = delete;
  ~LineChannel();

  enum class Read { line, ended, too_long };
  /// The next line without its end; waits for it. Too long is more than 64 MB.
  [[nodiscard]] Read read(std::string& line);
  /// Sends a line of its own, whatever else was written to the stream before. What cannot be sent is dropped: a parent
  /// that has gone is met at the next read.
  void write(std::string_view line) const;

 private:
  LineChannel(int in, int out) : in_(in), out_(out) {}
  int in_ = -1, out_ = -1;
  std::string buffer_;
  std::size_t scanned_ = 0;  ///< of buffer_, known to hold no line end
};

}  // namespace moetune
