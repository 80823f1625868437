// Our two ways to run the layer on a CPU.
#pragma once

#include "backend/backend.h"

namespace moetune {

/// What both have in common: which problems they take, and their sessions.
class CpuBackend : public Backend {
 public:
  [[nodiscard]] std::string revision() const override;
  /// All weight formats, routings and activations but situ, in sizes that fit the machine.
  [[nodiscard]] Reasons why_not(const Problem& problem, const Target& target) const override;
};

/// Streams the weights of each touched expert once, decoding them in registers for a few tokens at a time.
class CpuDecode : public CpuBackend {
 public:
  [[nodiscard]] std::string id() const override { return "moetune:cpu_decode"; }
  [[nodiscard]] std::string summary() const override;
  [[nodiscard]] Space space(const Problem& problem, const Target& target, std::int64_t tokens) const override;
  [[nodiscard]] Config default_config(const Problem& problem, const Target& target, std::int64_t tokens) const override;
  [[nodiscard]] Result<std::unique_ptr<Session>> open(const Problem& problem, const Layer& layer,
                                                      const Target& target) const override;
};

/// Dequantises panels of weights once into the cache and multiplies them by many tokens.
class CpuPrefill : public CpuBackend {
 public:
  [[nodiscard]] std::string id() const override { return "moetune:cpu_prefill"; }
  [[nodiscard]] std::string summary() const override;
  [[nodiscard]] Space space(const Problem& problem, const Target& target, std::int64_t tokens) const override;
  [[nodiscard]] Config default_config(const Problem& problem, const Target& target, std::int64_t tokens) const override;
  [[nodiscard]] Result<std::unique_ptr<Session>> open(const Problem& problem, const Layer& layer,
                                                      const Target& target) const override;
};

}  // namespace moetune
