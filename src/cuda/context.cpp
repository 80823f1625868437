#include "cuda/context.h"

#include <fmt/format.h>

namespace moetune::cuda {

Result<ContextRef> Context::create(std::shared_ptr<const Driver> driver, int ordinal) {
  const std::shared_ptr<Context> context(new Context);
  context->driver_ = std::move(driver);
  const auto& api = context->api();
  MOETUNE_CHECK(context->check(api.device_get(&context->device_, ordinal), fmt::format("cuDeviceGet({})", ordinal)));
  MOETUNE_CHECK(context->check(api.primary_context_retain(&context->context_, context->device_),
                               fmt::format("cuDevicePrimaryCtxRetain(device {})", ordinal)));
  MOETUNE_CHECK(context->make_current());
  return context;
}

Context::~Context() {
  if (context_ != nullptr) (void)api().primary_context_release(device_);
}

Status Context::make_current() const { return check(api().context_set_current(context_), "cuCtxSetCurrent"); }

Status Context::synchronize() const { return check(api().context_synchronize(), "cuCtxSynchronize"); }

Result<std::int64_t> Context::attribute(cu::DeviceAttribute attribute) const {
  int value = 0;
  const int id = static_cast<int>(attribute);
  MOETUNE_CHECK(check(api().device_attribute(&value, id, device_), fmt::format("cuDeviceGetAttribute({})", id)));
  return value;
}

Result<Context::Memory> Context::memory() const {
  std::size_t free = 0, total = 0;
  MOETUNE_CHECK(check(api().memory_info(&free, &total), "cuMemGetInfo"));
  return Memory{static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

}  // namespace moetune::cuda
