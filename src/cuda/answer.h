// What this room answers with where something of CUDA is absent, too old, broken or refuses: a Reason, which the
// backends pass on as it is.
#pragma once

#include <tl/expected.hpp>
#include <utility>

#include "base/error.h"
#include "base/reason.h"

namespace moetune::cuda {

template <class T>
using Answer = tl::expected<T, Reason>;

[[nodiscard]] inline tl::unexpected<Reason> refuse(Reason reason) { return tl::unexpected<Reason>(std::move(reason)); }

/// The same in the terms of a caller that cannot go on without: "have; needs need", with the hint.
[[nodiscard]] Error to_error(const Reason& reason);

}  // namespace moetune::cuda
