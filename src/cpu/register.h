// All that this folder offers.
#pragma once

#include "backend/backend.h"

namespace moetune {

/// Adds the CPU and its backends.
void register_cpu(Registry& registry);

}  // namespace moetune
