// The CUDA driver, opened at run time, and how its calls fail.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cuda/answer.h"
#include "cuda/driver_api.h"
#include "cuda/library_search.h"

namespace moetune::cuda {

/// Whether the code means that the context is lost: every later call of this process fails, the results of calls under
/// way are void, and only a new process can use the device again. The codes of which the driver's header says so,
/// memory and link errors that no retry corrects, and "unknown", after which nothing is certain.
[[nodiscard]] bool is_sticky(cu::Code code);

class Driver {
 public:
  /// Opens libcuda and starts it. The Reason tells absent, too old (below 12.0), broken and "no GPU here" apart.
  [[nodiscard]] static Answer<std::shared_ptr<const Driver>> open();
  [[nodiscard]] static Answer<std::shared_ptr<const Driver>> open(const LibrarySearch& search);

  [[nodiscard]] const DriverApi& api() const { return api_; }
  /// The CUDA version that it supports, as 1000 * major + 10 * minor: 13000.
  [[nodiscard]] int version() const { return version_; }
  /// "13.0"
  [[nodiscard]] std::string version_text() const;

  /// Success, or an Error "call: CUDA_ERROR_… (700): the driver's words". `call` names the call with its numbers. Kind
  /// out_of_memory or device_lost (is_sticky) where the code says so.
  [[nodiscard]] Status check(cu::Code code, std::string_view call) const;
  /// "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"
  [[nodiscard]] std::string describe(cu::Code code) const;

 private:
  Driver() = default;
  DriverApi api_;
  int version_ = 0;
};

}  // namespace moetune::cuda
