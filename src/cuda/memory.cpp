#include "cuda/memory.h"

#include <fmt/format.h>

namespace moetune::cuda {

Result<DeviceBuffer> DeviceBuffer::allocate(const ContextRef& context, std::size_t bytes) {
  if (bytes == 0) return DeviceBuffer({context, 0}, 0);
  cu::DevicePointer raw = 0;
  const auto code = context->api().memory_alloc(&raw, bytes);
  if (code == cu::kSuccess) return DeviceBuffer({context, raw}, bytes);
  std::string call = fmt::format("cuMemAlloc({} bytes", bytes);
  if (const auto memory = context->memory(); code == cu::kOutOfMemory && memory)
    call += fmt::format(", {} of {} free", memory->free_bytes, memory->total_bytes);
  return tl::unexpected(context->check(code, call + ")").error());
}

Result<DeviceBuffer> DeviceBuffer::of(const ContextRef& context, std::span<const std::byte> bytes) {
  MOETUNE_TRY(auto buffer, allocate(context, bytes.size()));
  MOETUNE_CHECK(buffer.upload(bytes));
  return buffer;
}

Status DeviceBuffer::fits(const char* call, std::size_t offset, std::size_t count) const {
  if (offset <= bytes_ && count <= bytes_ - offset) return {};
  return fail(fmt::format("{}: {} bytes at offset {} do not fit in a buffer of {} bytes", call, count, offset, bytes_));
}

Status DeviceBuffer::upload(std::span<const std::byte> from, std::size_t offset) const {
  MOETUNE_CHECK(fits("cuMemcpyHtoD", offset, from.size()));
  if (from.empty()) return {};
  const auto& context = *memory_.context();
  return context.check(context.api().copy_to_device(pointer() + offset, from.data(), from.size()),
                       fmt::format("cuMemcpyHtoD({} bytes)", from.size()));
}

Status DeviceBuffer::download(std::span<std::byte> to, std::size_t offset) const {
  MOETUNE_CHECK(fits("cuMemcpyDtoH", offset, to.size()));
  if (to.empty()) return {};
  const auto& context = *memory_.context();
  return context.check(context.api().copy_to_host(to.data(), pointer() + offset, to.size()),
                       fmt::format("cuMemcpyDtoH({} bytes)", to.size()));
}

Status DeviceBuffer::upload(const Stream& stream, std::span<const std::byte> from, std::size_t offset) const {
  MOETUNE_CHECK(fits("cuMemcpyHtoDAsync", offset, from.size()));
  if (from.empty()) return {};
  const auto& context = *memory_.context();
  return context.check(context.api().copy_to_device_async(pointer() + offset, from.data(), from.size(), stream.raw()),
                       fmt::format("cuMemcpyHtoDAsync({} bytes)", from.size()));
}

Status DeviceBuffer::download(const Stream& stream, std::span<std::byte> to, std::size_t offset) const {
  MOETUNE_CHECK(fits("cuMemcpyDtoHAsync", offset, to.size()));
  if (to.empty()) return {};
  const auto& context = *memory_.context();
  return context.check(context.api().copy_to_host_async(to.data(), pointer() + offset, to.size(), stream.raw()),
                       fmt::format("cuMemcpyDtoHAsync({} bytes)", to.size()));
}

Status DeviceBuffer::copy(const Stream& stream, const DeviceBuffer& from, std::size_t bytes) const {
  MOETUNE_CHECK(fits("cuMemcpyDtoDAsync", 0, bytes));
  MOETUNE_CHECK(from.fits("cuMemcpyDtoDAsync", 0, bytes));
  if (bytes == 0) return {};
  const auto& context = *memory_.context();
  return context.check(context.api().copy_on_device_async(pointer(), from.pointer(), bytes, stream.raw()),
                       fmt::format("cuMemcpyDtoDAsync({} bytes)", bytes));
}

Status DeviceBuffer::fill(const Stream& stream, std::uint8_t value) const {
  if (bytes_ == 0) return {};
  const auto& context = *memory_.context();
  return context.check(context.api().set_bytes_async(pointer(), value, bytes_, stream.raw()),
                       fmt::format("cuMemsetD8Async({} bytes)", bytes_));
}

Result<PinnedBuffer> PinnedBuffer::allocate(const ContextRef& context, std::size_t bytes) {
  if (bytes == 0) return PinnedBuffer({context, nullptr}, 0);
  void* raw = nullptr;
  MOETUNE_CHECK(
      context->check(context->api().memory_host_alloc(&raw, bytes, 0), fmt::format("cuMemHostAlloc({} bytes)", bytes)));
  return PinnedBuffer({context, raw}, bytes);
}

}  // namespace moetune::cuda
