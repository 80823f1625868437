// Where a checkpoint keeps the experts of a layer: the tensor names of the families, told from the names themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fields.h"
#include "model/checkpoint.h"
#include "model/geometry.h"

namespace moetune {

enum class Projection { gate, up, down };

template <>
struct EnumNames<Projection> {
  static constexpr std::array<std::string_view, 3> names = {"gate", "up", "down"};
};

/// A matrix inside a tensor: equally spaced elements, rows × columns, of whole bytes.
struct Grid {
  std::string tensor;  ///< its name, for messages
  Dtype dtype = Dtype::u8;
  const std::byte* data = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 0, column_stride = 0;  ///< bytes

  [[nodiscard]] std::int64_t element_bytes() const { return bits(dtype) / 8; }
  [[nodiscard]] const std::byte* at(std::int64_t row, std::int64_t column) const {
    return data + row * row_stride + column * column_stride;
  }
  /// Rows row … row + rows - 1 and likewise columns; they must lie inside.
  [[nodiscard]] Grid part(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  [[nodiscard]] Grid transposed() const;
};

/// How a family arranges them. ROOT is "model.layers.3.mlp.experts",
/// "language_model.model.layers.3.feed_forward.experts", "backbone.layers.3.mixer.experts", "layers.3.ffn.experts", …
/// and SUFFIX the kind of tensor (".weight",
/// ".weight_scale", "_blocks", none, …):
///
///   per_expert   ROOT.17.gate_proj SUFFIX, or w1 (gate), w3 (up), w2 (down): most families
///   stacked      ROOT.gate_proj SUFFIX [E, I, H], up_proj, down_proj [E, H, I]: Step 3; ROOT ends with "moe"
///   fused        ROOT.gate_up_proj SUFFIX [E, 2I, H], gate rows first, and down_proj [E, H, I]: Qwen3.5, Gemma 4; in
///                Granite input_linear and output_linear. Transposed, [E, H, 2I] and [E, I, H]: Llama 4, Qwen3-VL.
///                Gate in even rows and up in odd ones where there is a gate_up_proj_bias: gpt-oss
///   flat         ROOT.w1 (gate), v1 (up), w2 (down, transposed), each [E · I, H]: DBRX
enum class ExpertLayout { per_expert, stacked, fused, flat };

/// The expert tensors of one layer.
class ExpertTensors {
 public:
  /// Errors: the layer has no experts in this checkpoint (naming those that do), or there are several sets of them.
  [[nodiscard]] static Result<ExpertTensors> find(Checkpoint& checkpoint, const Geometry& geometry, std::int64_t layer);

  /// Whether there is a tensor of that suffix for this expert (index in the whole model) and projection.
  [[nodiscard]] bool has(Projection projection, std::int64_t expert, std::string_view suffix) const;

  /// rows × columns elements of that tensor: what belongs to the expert and projection, turned so that rows run along
  /// the projection's output. A tensor with fewer dimensions than the layout has will do where the missing ones are 1.
  /// Errors: no such tensor; a shape that is not the wanted one.
  [[nodiscard]] Result<Grid> get(Projection projection, std::int64_t expert, std::string_view suffix, std::int64_t rows,
                                 std::int64_t columns) const;

  /// The same for a bias, rows × 1, which no layout transposes.
  [[nodiscard]] Result<Grid> get_bias(Projection projection, std::int64_t expert, std::int64_t rows) const;

  /// The whole tensor that holds it, F4 seen as bytes.
  [[nodiscard]] Result<TensorView> tensor(Projection projection, std::int64_t expert, std::string_view suffix) const;

  /// "model.layers.3.mlp.experts.17.gate_proj" + suffix, as the checkpoint spells it.
  [[nodiscard]] std::string name(Projection projection, std::int64_t expert, std::string_view suffix) const;

  /// Whether several experts' gate and up share a tensor, so that blocks of rows may straddle the two.
  [[nodiscard]] bool fused() const { return layout_ == ExpertLayout::fused; }

 private:
  ExpertTensors(Checkpoint& checkpoint, const Geometry& geometry) : checkpoint_(&checkpoint), geometry_(&geometry) {}

  Status read_orientation();
  [[nodiscard]] Result<Grid> cut(const TensorView& tensor, Projection projection, std::int64_t expert,
                                 std::int64_t rows, std::int64_t columns, bool turned) const;

  Checkpoint* checkpoint_;
  const Geometry* geometry_;
  ExpertLayout layout_ = ExpertLayout::per_expert;
  std::string root_;
  std::array<std::string, 3> projection_names_;  ///< by Projection
  bool transposed_ = false, interleaved_ = false;
};

}  // namespace moetune
