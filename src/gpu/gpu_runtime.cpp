#include "gpu/gpu_runtime.h"

#include <span>
#include <utility>
#include <vector>

namespace moetune {
namespace {

std::span<const std::byte> bytes_of(const Buffer& buffer) {
  return {buffer.data(), static_cast<std::size_t>(buffer.size())};
}

/// The buffer, with room behind it for the row tiles that kernels may read (kMostRowTiles).
Result<cuda::DeviceBuffer> upload_padded(const cuda::ContextRef& context, const Buffer& buffer, std::int64_t tiles) {
  const std::int64_t padding = buffer.size() / tiles * (kMostRowTiles - 1);
  MOETUNE_TRY(auto on_device, cuda::DeviceBuffer::allocate(context, static_cast<std::size_t>(buffer.size() + padding)));
  MOETUNE_CHECK(on_device.upload(bytes_of(buffer)));
  return on_device;
}

Result<DeviceStack> upload(const cuda::ContextRef& context, const PackedStack& packed) {
  DeviceStack stack;
  const std::int64_t tiles = packed.experts * packed.row_tiles;
  MOETUNE_TRY(stack.data, upload_padded(context, packed.data, tiles));
  MOETUNE_TRY(stack.scales, upload_padded(context, packed.scales, tiles));
  MOETUNE_TRY(stack.row_scale, cuda::DeviceBuffer::of(context, std::as_bytes(std::span(packed.row_scale))));
  MOETUNE_TRY(stack.bias, cuda::DeviceBuffer::of(context, std::as_bytes(std::span(packed.bias))));
  stack.view = {stack.data.as<void>(), stack.scales.as<void>(), stack.row_scale.as<float>(), stack.bias.as<float>(),
                static_cast<int>(packed.columns)};
  return stack;
}

}  // namespace

const cuda::Answer<std::shared_ptr<const cuda::Driver>>& GpuRuntime::driver() {
  if (!driver_) driver_ = cuda::Driver::open();
  return *driver_;
}

const cuda::Answer<std::shared_ptr<const cuda::Compiler>>& GpuRuntime::compiler() {
  if (!compiler_) compiler_ = cuda::Compiler::open();
  return *compiler_;
}

cuda::ModuleCache& GpuRuntime::kernels() {
  if (kernels_ == nullptr) {
    cuda::ModuleCacheOptions options;
    options.folder = cuda::kernel_cache_folder();
    kernels_ = std::make_unique<cuda::ModuleCache>(*compiler(), options);
  }
  return *kernels_;
}

Result<cuda::ContextRef> GpuRuntime::context() {
  if (context_ != nullptr) return context_;
  if (!driver()) return tl::unexpected(cuda::to_error(driver().error()));
  MOETUNE_TRY(context_, cuda::Context::create(*driver(), 0));
  return context_;
}

Result<cuda::Module> GpuRuntime::load(const cuda::KernelSource& source) {
  if (!compiler()) return tl::unexpected(cuda::to_error(compiler().error()));
  MOETUNE_TRY(const auto where, context());
  const auto compiled = kernels().get(source);
  if (!compiled) return tl::unexpected(cuda::to_error(compiled.error()));
  return cuda::Module::load(where, (*compiled)->cubin);
}

Result<std::shared_ptr<const DeviceLayer>> GpuRuntime::weights(const Layer& layer) {
  if (layer_ == &layer)
    if (auto there = layer_weights_.lock()) return there;
  MOETUNE_TRY(const auto where, context());
  auto weights = std::make_shared<DeviceLayer>();
  {
    MOETUNE_TRY(const PackedStack up, pack_up(layer));
    MOETUNE_TRY(weights->up, upload(where, up));
  }
  MOETUNE_TRY(const PackedStack down, pack_down(layer));
  MOETUNE_TRY(weights->down, upload(where, down));
  layer_ = &layer;
  layer_weights_ = weights;
  return std::shared_ptr<const DeviceLayer>(std::move(weights));
}

}  // namespace moetune
