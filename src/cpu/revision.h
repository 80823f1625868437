// What stored results of the CPU backends are filed under.
#pragma once

#include <string_view>

namespace moetune {

/// A hash of this folder's sources (without tests), taken when the library was built.
extern const std::string_view kCpuRevision;

}  // namespace moetune
