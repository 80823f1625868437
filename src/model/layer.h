// The weights of one MoE layer on one device, in the canonical layout of formats/spec.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/spec.h"
#include "model/problem.h"

namespace moetune {

/// Page-aligned memory of its own, zeroed, with huge pages asked for where it is large. Move-only.
class Buffer {
 public:
  Buffer() = default;
  /// Fails, with the sizes, where the machine will not give that much.
  [[nodiscard]] static Result<Buffer> allocate(std::int64_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

/// The same projection of every expert: expert after expert, each an N × K matrix in canonical layout.
struct ExpertStack {
  WeightSpec spec;
  std::int64_t experts = 0, n = 0, k = 0;
  Buffer data, scales, zeros;
  std::vector<float> global_scale;  ///< nvfp4: one per expert; empty otherwise
  std::vector<float> bias;          ///< [experts, n]; empty where the model has none

  /// Allocates the three buffers for that shape, zeroed. Fails where check_shape refuses the shape, where there are no
  /// experts, or where memory is short.
  [[nodiscard]] static Result<ExpertStack> allocate(const WeightSpec& spec, std::int64_t experts, std::int64_t n,
                                                    std::int64_t k);
  [[nodiscard]] MatrixView at(std::int64_t expert) const;
  [[nodiscard]] std::span<const float> bias_of(std::int64_t expert) const;  ///< n values, or empty
};

struct Layer {
  ExpertStack gate;    ///< [experts, I, H]; experts = 0 where the model is not gated
  ExpertStack up;      ///< [experts, I, H]
  ExpertStack down;    ///< [experts, H, I]
  std::string origin;  ///< "random weights, seed 1" or the folder and layer they were read from
};

/// The stacks that the problem needs, zeroed: no gate where it is not gated, no biases yet. Fails where the layer
/// exceeds the memory that is available now.
[[nodiscard]] Result<Layer> allocate_layer(const Problem& problem);

/// Weights whose outputs behave like a trained layer's (activations of order one in, of order one out), made from a
/// seed at memory speed: the same seed gives the same bytes on every machine and for any number of `threads` (0: one
/// for each core).
[[nodiscard]] Result<Layer> random_layer(const Problem& problem, std::uint64_t seed, unsigned threads = 0);

/// Reads layer `layer` (index in the model; negative: the first with experts) of a Hugging Face folder, the part that
/// the device of ranks `how` holds; `problem` is cut(geometry, how). Tensor names per family: model/expert_tensors.h;
/// per number format: model/expert_source.h. Under TP the bias of down is zero on all ranks but the first, since the
/// ranks' outputs are added up. Errors: a layer without experts; a tensor that is missing, or has not the element type
/// or the shape that config.json promises; a scale or weight that is not finite; a part that cuts through a block of a
/// scale.
[[nodiscard]] Result<Layer> load_layer(const std::string& folder, const Geometry& geometry, const Problem& problem,
                                       const Cut& how, std::int64_t layer = -1);

/// Whether the folder holds safetensors at all.
[[nodiscard]] bool has_weights(const std::string& folder);

}  // namespace moetune
