#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/env.h"

namespace moetune {
namespace {

/// An open file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> fail_errno(const std::string& path, std::string_view doing) {
  return fail(fmt::format("{}: cannot {}: {}", path, doing, std::strerror(errno)));
}

Result<std::size_t> regular_size(const std::string& path, int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno(path, "read its size");
  if (!S_ISREG(info.st_mode)) return fail(path + ": not a regular file");
  return static_cast<std::size_t>(info.st_size);
}

// O_NONBLOCK: a FIFO put where a file is expected must not block the open.
int open_read(const std::string& path) { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  const Descriptor file(open_read(path));
  if (file.get() < 0) return fail_errno(path, "open");
  MOETUNE_TRY(const std::size_t size, regular_size(path, file.get()));
  if (size > max_bytes) return fail(fmt::format("{}: {} bytes exceed the limit of {}", path, size, max_bytes));
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const auto got = ::read(file.get(), text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(path, "read");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

Status write_file(const std::string& path, std::string_view text) {
  std::error_code ignored;
  const auto parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, ignored);
  // Renaming over a device or a pipe would put a file in its place.
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    return fail(path + ": not a regular file");
  std::string beside = path + ".XXXXXX";
  const Descriptor file(::mkostemp(beside.data(), O_CLOEXEC));
  if (file.get() < 0) return fail_errno(path, "create a file beside it");
  const auto give_up = [&](std::string_view doing) {
    auto error = fail_errno(path, doing);
    ::unlink(beside.c_str());
    return error;
  };
  std::size_t done = 0;
  while (done < text.size()) {
    const auto put = ::write(file.get(), text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return give_up("write");
    done += static_cast<std::size_t>(put);
  }
  if (::fchmod(file.get(), 0644) != 0) return give_up("set its mode");
  if (::fsync(file.get()) != 0) return give_up("sync");
  if (::rename(beside.c_str(), path.c_str()) != 0) return give_up("rename into place");
  return {};
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const Descriptor file(open_read(path));
  if (file.get() < 0) return fail_errno(path, "open");
  MOETUNE_TRY(const std::size_t size, regular_size(path, file.get()));
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return fail_errno(path, "map");
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string cache_folder() {
  if (auto home = env(Env::home)) return *home;
  if (auto xdg = env(Env::xdg_cache)) return *xdg + "/moetune";
  return env(Env::user_home).value_or("/tmp") + "/.cache/moetune";
}

}  // namespace moetune
