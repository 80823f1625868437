// Backends that go wrong on purpose, each in one way. They exist in this test only.
#pragma once

#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/outcome.h"

namespace moetune {

/// Adds a CPU target, "test:right", "test:slow" (right, 2 ms a call) and one "test:<fault>" for each of faults().
void register_faulty(Registry& registry);

struct Fault {
  std::string_view name;
  OutcomeStatus expected;
};
[[nodiscard]] std::span<const Fault> faults();

}  // namespace moetune
