// The only place that names concrete backends.
#pragma once

#include "backend/backend.h"

namespace moetune {

void register_all(Registry& registry);

}  // namespace moetune
