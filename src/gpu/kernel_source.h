// The device code that this binary carries, ready for the compiler.
#pragma once

#include <span>
#include <string>

#include "arch/target.h"
#include "base/embedded.h"
#include "cuda/compiler.h"

namespace moetune {

/// Every file of src/kernels/, by its path in the project.
[[nodiscard]] std::span<const EmbeddedFile> kernel_files();

/// The compile target that has all features of a GPU: "sm_90a" for 9.0, "sm_80" for 8.0.
[[nodiscard]] std::string compile_target(const Target& target);

/// One translation unit with all device code within its reach: `#include "sm80/sm80_decode.cuh"`. The namespace moetune
/// is opened for it.
[[nodiscard]] cuda::KernelSource kernel_source(std::string name, std::string text, const Target& target);

}  // namespace moetune
