// Files: bounded reads, atomic writes, memory maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace moetune {

/// The whole file, at most max_bytes of it: a larger one is an error, not a cut. Only regular files.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t max_bytes);

/// Writes beside `path`, syncs, then renames: readers see the old file or the new one, never half of it. Creates parent
/// folders.
[[nodiscard]] Status write_file(const std::string& path, std::string_view text);

/// A regular file mapped read-only. Move-only; unmapped when destroyed.
class MappedFile {
 public:
  [[nodiscard]] static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The folder for stored results and compiled kernels: $MOETUNE_HOME, else $XDG_CACHE_HOME/moetune, else
/// ~/.cache/moetune.
[[nodiscard]] std::string cache_folder();

}  // namespace moetune
