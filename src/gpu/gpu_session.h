// A layer on the GPU.
#pragma once

#include <memory>

#include "gpu/gpu_backend.h"

namespace moetune {

/// Weights on the device, no config yet. `backend` and `problem` outlive the session.
[[nodiscard]] Result<std::unique_ptr<Session>> open_gpu_session(const GpuBackend& backend,
                                                                std::shared_ptr<GpuRuntime> runtime,
                                                                const Problem& problem, const Layer& layer,
                                                                const Target& target);

}  // namespace moetune
