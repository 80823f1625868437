#include "cuda/driver.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace moetune::cuda {
namespace {

constexpr int kMinVersion = 12000;

std::string dotted(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// What to do about a failed start.
std::string start_hint(cu::Code code) {
  switch (code) {
    case cu::kStubLibrary:
      return "this libcuda is the toolkit's stub for linkers: take its folder off LD_LIBRARY_PATH";
    case cu::kNoDevice:
      return "look at CUDA_VISIBLE_DEVICES, nvidia-smi, and whether the container was started with access to the GPU";
    default:
      return "see whether nvidia-smi works; after a driver update the machine must be restarted";
  }
}

}  // namespace

bool is_sticky(cu::Code code) {
  switch (code) {
    case cu::kEccUncorrectable:
    case cu::kNvlinkUncorrectable:
    case cu::kContained:
    case cu::kIllegalAddress:
    case cu::kLaunchTimeout:
    case cu::kContextIsDestroyed:
    case cu::kAssert:
    case cu::kHardwareStackError:
    case cu::kIllegalInstruction:
    case cu::kMisalignedAddress:
    case cu::kInvalidAddressSpace:
    case cu::kInvalidPc:
    case cu::kLaunchFailed:
    case cu::kTensorMemoryLeak:
    case cu::kUnknown:
      return true;
    default:
      return false;
  }
}

Answer<std::shared_ptr<const Driver>> Driver::open() { return open(driver_search(search_roots(Env::cuda_driver))); }

Answer<std::shared_ptr<const Driver>> Driver::open(const LibrarySearch& search) {
  const auto driver = std::shared_ptr<Driver>(new Driver);
  const auto accept = [&driver](const DynamicLibrary& library) -> std::optional<std::string> {
    // The version first: an old driver lacks functions too, and "too old" says more than their names.
    if (const auto version = library.symbol<cu::Code (*)(int*)>("cuDriverGetVersion"); version != nullptr) {
      if (version(&driver->version_) == cu::kSuccess && driver->version_ < kMinVersion)
        return fmt::format("it supports CUDA {} and {} is needed: too old", dotted(driver->version_),
                           dotted(kMinVersion));
    }
    return resolve(library, driver->api_);
  };
  if (auto library = find_library(search, accept); !library) return refuse(std::move(library).error());
  if (const auto code = driver->api_.init(0); code != cu::kSuccess)
    return refuse({ReasonCode::driver, "cuInit: " + driver->describe(code), "a CUDA driver that starts and sees a GPU",
                   start_hint(code), ""});
  return driver;
}

std::string Driver::version_text() const { return dotted(version_); }

std::string Driver::describe(cu::Code code) const {
  const char* name = nullptr;
  const char* text = nullptr;
  (void)api_.error_name(code, &name);  // leaves null for a code it does not know
  (void)api_.error_string(code, &text);
  return fmt::format("{} ({}): {}", name != nullptr ? name : "unknown error", code,
                     text != nullptr ? text : "the driver has no words for it");
}

Status Driver::check(cu::Code code, std::string_view call) const {
  if (code == cu::kSuccess) return {};
  std::vector<std::string> hints;
  auto kind = ErrorKind::other;
  if (is_sticky(code)) {
    kind = ErrorKind::device_lost;
    hints.emplace_back("the device is lost to this process: go on in a new one");
  } else if (code == cu::kOutOfMemory) {
    kind = ErrorKind::out_of_memory;
  } else if (code == cu::kInvalidImage || code == cu::kNoBinaryForGpu || code == cu::kUnsupportedPtxVersion) {
    hints.push_back(fmt::format(
        "compile for this GPU's own target with a compiler no newer than the driver, which supports CUDA {}",
        version_text()));
  }
  return fail(fmt::format("{}: {}", call, describe(code)), std::move(hints), kind);
}

}  // namespace moetune::cuda
