// All that this folder offers.
#pragma once

#include "backend/backend.h"

namespace moetune {

/// Adds NVIDIA GPUs and the backends that run on them.
void register_gpu(Registry& registry);

}  // namespace moetune
