// The child's side: runs candidates and answers.
#pragma once

#include "backend/backend.h"

namespace moetune {

/// The body of `moetune worker`: reads requests from standard input and answers on what was standard output when it was
/// called; from then on whatever code prints there goes to standard error. Returns the exit code.
int worker_main(const Registry& registry);

}  // namespace moetune
