// The child's side: runs candidates and answers.
#pragma once

#include "backend/backend.h"

namespace moetune {

/// The body of `moetune worker`: reads requests from standard input and answers on what was standard output when it was
/// called (worker/line_channel.h), until it is asked to quit or its input ends. Returns the exit code.
int worker_main(const Registry& registry);

}  // namespace moetune
