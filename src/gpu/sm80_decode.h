// Host twin of kernels/sm80/sm80_decode.cuh: few tokens an expert.
#pragma once

#include "gpu/gpu_backend.h"

namespace moetune {

class Sm80Decode : public GpuBackend {
 public:
  using GpuBackend::GpuBackend;
  [[nodiscard]] std::string id() const override { return "moetune:sm80_decode"; }
  [[nodiscard]] std::string summary() const override {
    return "streams weights from memory straight into mma.sync operands; for few tokens an expert";
  }
  [[nodiscard]] Space space(const Problem& problem, const Target& target, std::int64_t tokens) const override;
  [[nodiscard]] bool prefers(const Problem& problem, const Target& target, std::int64_t tokens) const override;
  [[nodiscard]] Config default_config(const Problem& problem, const Target& target, std::int64_t tokens) const override;
  [[nodiscard]] LayerPlan plan(const Problem& problem, const Target& target, const Config& config) const override;
};

}  // namespace moetune
