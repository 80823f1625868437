// Host twin of kernels/sm80/sm80_tile.cuh: many tokens an expert.
#pragma once

#include "gpu/gpu_backend.h"

namespace moetune {

class Sm80Tile : public GpuBackend {
 public:
  using GpuBackend::GpuBackend;
  [[nodiscard]] std::string id() const override { return "moetune:sm80_tile"; }
  [[nodiscard]] std::string summary() const override {
    return "tiles of rows and tokens through shared memory into mma.sync; for many tokens an expert";
  }
  [[nodiscard]] Space space(const Problem& problem, const Target& target, std::int64_t tokens) const override;
  [[nodiscard]] Config default_config(const Problem& problem, const Target& target, std::int64_t tokens) const override;
  [[nodiscard]] LayerPlan plan(const Problem& problem, const Target& target, const Config& config) const override;
};

}  // namespace moetune
