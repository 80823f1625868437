// A device's primary context, and what owns one object of the driver in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "cuda/driver.h"

namespace moetune::cuda {

/// The primary context of one device, current on the thread that made it. Everything made in it keeps it alive. Calls
/// that use it come from a thread where it is current: the one that made it, or one that called make_current.
class Context {
 public:
  /// `ordinal` counts the devices that the driver shows, from 0.
  [[nodiscard]] static Result<std::shared_ptr<const Context>> create(std::shared_ptr<const Driver> driver, int ordinal);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  [[nodiscard]] Status make_current() const;
  /// Waits for everything under way. An Error of a kernel that failed earlier surfaces here.
  [[nodiscard]] Status synchronize() const;
  [[nodiscard]] Result<std::int64_t> attribute(cu::DeviceAttribute attribute) const;
  struct Memory {
    std::int64_t free_bytes = 0, total_bytes = 0;
  };
  [[nodiscard]] Result<Memory> memory() const;

  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] const DriverApi& api() const { return driver_->api(); }
  [[nodiscard]] cu::Device device() const { return device_; }
  [[nodiscard]] cu::Context raw() const { return context_; }
  [[nodiscard]] Status check(cu::Code code, std::string_view call) const { return driver_->check(code, call); }

 private:
  Context() = default;
  std::shared_ptr<const Driver> driver_;
  cu::Device device_ = 0;
  cu::Context context_ = nullptr;
};
using ContextRef = std::shared_ptr<const Context>;

/// One object of the driver that `Release` destroys, on whatever thread. Move-only. A failure to destroy is not
/// reported: it only happens where the context is lost, which the calls before it have said.
template <class Raw, cu::Code (*DriverApi::*Release)(Raw)>
class Owned {
 public:
  Owned() = default;
  Owned(ContextRef context, Raw raw) : context_(std::move(context)), raw_(raw) {}
  Owned(Owned&& other) noexcept : context_(std::move(other.context_)), raw_(std::exchange(other.raw_, Raw{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(raw_, other.raw_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (raw_ == Raw{}) return;
    const auto& api = context_->api();
    cu::Context previous = nullptr;
    const bool pushed = api.context_push(context_->raw()) == cu::kSuccess;
    (void)(api.*Release)(raw_);
    if (pushed) (void)api.context_pop(&previous);
  }

  [[nodiscard]] Raw get() const { return raw_; }
  [[nodiscard]] const ContextRef& context() const { return context_; }

 private:
  ContextRef context_;
  Raw raw_{};
};

}  // namespace moetune::cuda
