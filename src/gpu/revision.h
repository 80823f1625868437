// What stored results of the GPU backends are filed under, besides the versions of CUDA.
#pragma once

#include <string_view>

namespace moetune {

/// A hash of this folder's sources (without tests) and of all device code, taken when the library was built.
extern const std::string_view kGpuRevision;

}  // namespace moetune
