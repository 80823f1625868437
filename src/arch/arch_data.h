// The data files that the build puts into the binary.
#pragma once

#include <span>

#include "base/embedded.h"

namespace moetune {

/// data/archs.toml and data/gpus.toml.
[[nodiscard]] std::span<const EmbeddedFile> arch_data();

}  // namespace moetune
