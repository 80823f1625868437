#pragma once

#include <span>

#include "base/embedded.h"

namespace moetune {

std::span<const EmbeddedFile> family_data();  ///< data/families.toml
std::span<const EmbeddedFile> model_data();   ///< data/models/*.json

}  // namespace moetune
