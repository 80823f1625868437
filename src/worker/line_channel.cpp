#include "worker/line_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace moetune {
namespace {

constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;

}  // namespace

Result<LineChannel> LineChannel::take_standard_streams() {
  LineChannel channel(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1),
                      ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool ready = channel.in_ >= 0 && channel.out_ >= 0 && nothing >= 0 && ::dup2(nothing, STDIN_FILENO) >= 0 &&
                     ::dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
  const int why = errno;
  if (nothing > STDERR_FILENO) ::close(nothing);
  if (!ready) return fail(fmt::format("cannot take over the standard streams: {}", std::strerror(why)));
  return channel;
}

LineChannel::LineChannel(LineChannel&& other) noexcept
    : in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)),
      buffer_(std::move(other.buffer_)),
      scanned_(other.scanned_) {}

LineChannel::~LineChannel() {
  for (const int fd : {in_, out_})
    if (fd >= 0) ::close(fd);
}

LineChannel::Read LineChannel::read(std::string& line) {
  std::array<char, 1 << 16> chunk;
  while (true) {
    if (const auto end = buffer_.find('\n', scanned_); end != std::string::npos) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      scanned_ = 0;
      return Read::line;
    }
    scanned_ = buffer_.size();
    if (buffer_.size() > kMaxLineBytes) return Read::too_long;
    const auto got = ::read(in_, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Read::ended;
    buffer_.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

void LineChannel::write(std::string_view line) const {
  // The line end before it ends what others may have left there without one; empty lines mean nothing.
  const std::string text = fmt::format("\n{}\n", line);
  for (std::string_view left = text; !left.empty();) {
    const auto put = ::write(out_, left.data(), left.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    left.remove_prefix(static_cast<std::size_t>(put));
  }
}

}  // namespace moetune
