// Memory of the device, and host memory that the device can copy from and to without a detour.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/stream.h"

namespace moetune::cuda {

/// Bytes on the device. Move-only. Every copy is checked against the size: an offset and length outside the buffer are
/// an Error.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;  ///< empty
  /// Zero bytes are an empty buffer with a null pointer. Not initialised. Errors: out_of_memory, with what was free.
  [[nodiscard]] static Result<DeviceBuffer> allocate(const ContextRef& context, std::size_t bytes);
  /// allocate and upload.
  [[nodiscard]] static Result<DeviceBuffer> of(const ContextRef& context, std::span<const std::byte> bytes);

  [[nodiscard]] cu::DevicePointer pointer() const { return memory_.get(); }
  /// The same for a kernel argument that is a pointer.
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(pointer());
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// Copies and waits for the copy. `offset` in bytes into this buffer.
  [[nodiscard]] Status upload(std::span<const std::byte> from, std::size_t offset = 0) const;
  [[nodiscard]] Status download(std::span<std::byte> to, std::size_t offset = 0) const;
  /// In the stream's order; the host memory stays in place until then, and only pinned memory makes it asynchronous.
  [[nodiscard]] Status upload(const Stream& stream, std::span<const std::byte> from, std::size_t offset = 0) const;
  [[nodiscard]] Status download(const Stream& stream, std::span<std::byte> to, std::size_t offset = 0) const;
  /// Copies `bytes` from the start of another buffer to the start of this one.
  [[nodiscard]] Status copy(const Stream& stream, const DeviceBuffer& from, std::size_t bytes) const;
  /// Every byte of the buffer, in the stream's order.
  [[nodiscard]] Status fill(const Stream& stream, std::uint8_t value) const;

 private:
  using Memory = Owned<cu::DevicePointer, &DriverApi::memory_free>;
  DeviceBuffer(Memory memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  [[nodiscard]] Status fits(const char* call, std::size_t offset, std::size_t count) const;
  Memory memory_;
  std::size_t bytes_ = 0;
};

/// Page-locked host memory. Move-only.
class PinnedBuffer {
 public:
  [[nodiscard]] static Result<PinnedBuffer> allocate(const ContextRef& context, std::size_t bytes);
  [[nodiscard]] std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_.get()), bytes_}; }

 private:
  using Memory = Owned<void*, &DriverApi::memory_free_host>;
  PinnedBuffer(Memory memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  Memory memory_;
  std::size_t bytes_ = 0;
};

}  // namespace moetune::cuda
