#include "model/expert_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "model/json_events.h"

namespace moetune {
namespace {

using Parts = std::vector<std::string_view>;

Parts split(std::string_view name) {
  Parts parts;
  for (std::size_t start = 0;;) {
    const std::size_t dot = name.find('.', start);
    parts.push_back(name.substr(start, dot - start));
    if (dot == std::string_view::npos) return parts;
    start = dot + 1;
  }
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// Modules beside the language model that have layers of their own: draft heads, towers, the talker of an omni model.
bool is_beside(std::string_view part) {
  constexpr std::array<std::string_view, 6> kStarts = {"mtp", "nextn", "vision", "visual", "audio", "talker"};
  return std::any_of(kStarts.begin(), kStarts.end(), [&](std::string_view start) { return part.starts_with(start); });
}

/// What a tensor's name says.
struct Place {
  std::int64_t layer = 0;
  std::string root;
  ExpertLayout layout = ExpertLayout::per_expert;
  std::string_view projection;  ///< "gate_proj", "w1", "input_linear", "gate_up_proj"; suffixes may still hang on it
};

std::string join(std::span<const std::string_view> parts) { return fmt::format("{}", fmt::join(parts, ".")); }

/// The place of what stands behind "experts", or nothing.
std::optional<Place> place_in_experts(const Parts& parts, std::size_t experts) {
  const std::span all(parts);
  const auto part = [&](std::size_t i) { return i < parts.size() ? parts[i] : std::string_view(); };
  Place place;
  place.root = join(all.first(experts + 1));
  place.projection = part(experts + 1);
  if (number(place.projection)) {
    place.layout = ExpertLayout::per_expert;
    place.projection = part(experts + 2);
  } else if (place.projection == "mlp" && (part(experts + 2) == "v1" || part(experts + 2) == "w2")) {
    place.root += ".mlp";
    place.layout = ExpertLayout::flat;
    place.projection = part(experts + 2);
  } else if (place.projection.starts_with("gate_up_proj")) {
    place.layout = ExpertLayout::fused;
  } else if (place.projection.starts_with("up_proj")) {
    place.layout = ExpertLayout::stacked;
  } else {
    return std::nullopt;
  }
  return place;
}

/// Where the experts are, as far as this one name tells. Down projections alone tell nothing in stacked and fused
/// layouts, so that they name no place.
std::optional<Place> find_place(std::string_view name) {
  const Parts parts = split(name);
  std::size_t layers = 0;
  while (layers < parts.size() && parts[layers] != "layers" && parts[layers] != "blocks") ++layers;
  if (layers + 3 >= parts.size() ||
      std::any_of(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(layers), is_beside))
    return std::nullopt;
  const auto layer = number(parts[layers + 1]);
  if (!layer) return std::nullopt;
  std::optional<Place> place;
  for (std::size_t i = layers + 2; i + 1 < parts.size() && !place; ++i) {
    const bool moe = parts[i] == "moe" || parts[i] == "block_sparse_moe";
    if (parts[i] == "experts") place = place_in_experts(parts, i);
    if (moe && parts[i + 1] == "input_linear")
      place = Place{0, join(std::span(parts).first(i + 1)), ExpertLayout::fused, parts[i + 1]};
    if (moe && parts[i + 1] == "up_proj")
      place = Place{0, join(std::span(parts).first(i + 1)), ExpertLayout::stacked, parts[i + 1]};
  }
  if (place) place->layer = *layer;
  return place;
}

/// gate, up, down as the layout spells them, told from one of the names.
std::array<std::string, 3> projection_names(ExpertLayout layout, std::string_view seen) {
  if (layout == ExpertLayout::flat) return {"w1", "v1", "w2"};
  if (layout == ExpertLayout::fused && seen == "input_linear") return {"input_linear", "input_linear", "output_linear"};
  if (layout == ExpertLayout::fused) return {"gate_up_proj", "gate_up_proj", "down_proj"};
  if (seen == "w1" || seen == "w2" || seen == "w3") return {"w1", "w3", "w2"};
  return {"gate_proj", "up_proj", "down_proj"};
}

struct Found {
  ExpertLayout layout = ExpertLayout::per_expert;
  std::string root;
  std::array<std::string, 3> projections;
  bool operator<(const Found& other) const {
    return std::tie(layout, root, projections) < std::tie(other.layout, other.root, other.projections);
  }
};

std::string list_layers(const std::set<std::int64_t>& layers) {
  if (layers.empty()) return "no layer of this checkpoint has experts under a name that is known";
  const bool gapless = *layers.rbegin() - *layers.begin() + 1 == static_cast<std::int64_t>(layers.size());
  if (gapless) return fmt::format("layers {} to {} have experts", *layers.begin(), *layers.rbegin());
  constexpr std::size_t kShown = 8;
  std::vector<std::int64_t> first(
      layers.begin(), std::next(layers.begin(), static_cast<std::ptrdiff_t>(std::min(kShown, layers.size()))));
  return fmt::format("layers {}{} have experts", fmt::join(first, ", "), layers.size() > kShown ? ", …" : "");
}

/// The shape without the dimensions of 1 at its end that exceed `rank`, with those that lack added.
std::vector<std::int64_t> with_rank(std::vector<std::int64_t> shape, std::size_t rank) {
  while (shape.size() > rank && shape.back() == 1) shape.pop_back();
  while (shape.size() < rank) shape.push_back(1);
  return shape;
}

/// Row-major [rows, columns] over a tensor's bytes, from element `first` on.
Grid row_major(const TensorView& tensor, std::int64_t first, std::int64_t rows, std::int64_t columns) {
  Grid grid{tensor.name, tensor.dtype, nullptr, rows, columns, 0, 0};
  grid.column_stride = grid.element_bytes();
  grid.row_stride = columns * grid.column_stride;
  grid.data = tensor.bytes.data() + first * grid.column_stride;
  return grid;
}

}  // namespace

Grid Grid::part(std::int64_t row, std::int64_t part_rows, std::int64_t column, std::int64_t part_columns) const {
  Grid grid = *this;
  grid.data = at(row, column);
  grid.rows = part_rows;
  grid.columns = part_columns;
  return grid;
}

Grid Grid::transposed() const {
  Grid grid = *this;
  std::swap(grid.rows, grid.columns);
  std::swap(grid.row_stride, grid.column_stride);
  return grid;
}

Result<ExpertTensors> ExpertTensors::find(Checkpoint& checkpoint, const Geometry& geometry, std::int64_t layer) {
  std::set<Found> found;
  std::set<std::int64_t> layers;
  for (const std::string_view name : checkpoint.names()) {
    const auto place = find_place(name);
    if (!place) continue;
    layers.insert(place->layer);
    if (place->layer == layer)
      found.insert({place->layout, place->root, projection_names(place->layout, place->projection)});
  }
  if (found.empty())
    return fail(fmt::format("{}: layer {} has no experts; {}", checkpoint.folder(), layer, list_layers(layers)));
  if (found.size() > 1)
    return fail(fmt::format("{}: layer {} has several sets of experts: {} and {}", checkpoint.folder(), layer,
                            printable(found.begin()->root), printable(std::next(found.begin())->root)));
  ExpertTensors experts(checkpoint, geometry);
  experts.layout_ = found.begin()->layout;
  experts.root_ = found.begin()->root;
  experts.projection_names_ = found.begin()->projections;
  experts.interleaved_ = checkpoint.has(experts.root_ + ".gate_up_proj_bias");
  MOETUNE_CHECK(experts.read_orientation());
  return experts;
}

/// Fused tensors of unpacked elements come both ways. One of the two fits, and never both: that would take 2I = H and
/// I = H at once.
Status ExpertTensors::read_orientation() {
  if (layout_ == ExpertLayout::flat) transposed_ = true;  // of down only
  if (layout_ != ExpertLayout::fused) return {};
  const std::string_view suffix = has(Projection::down, 0, "") ? "" : ".weight";
  if (!has(Projection::gate, 0, suffix) || !has(Projection::down, 0, suffix)) return {};  // packed: never transposed
  MOETUNE_TRY(const TensorView gate_up, tensor(Projection::gate, 0, suffix));
  MOETUNE_TRY(const TensorView down, tensor(Projection::down, 0, suffix));
  const std::int64_t width = 2 * geometry_->intermediate, hidden = geometry_->expert_hidden;
  const auto fits = [&](std::size_t out) {
    return gate_up.shape.size() == 3 && down.shape.size() == 3 && gate_up.shape[out] == width &&
           down.shape[out] == hidden;
  };
  if (!fits(1) && !fits(2))
    return fail(fmt::format("{} has shape [{}] and {} [{}]; config.json promises {} experts of {} x {}",
                            printable(gate_up.name), fmt::join(gate_up.shape, ", "), printable(down.name),
                            fmt::join(down.shape, ", "), geometry_->experts, geometry_->intermediate, hidden));
  transposed_ = !fits(1);
  return {};
}

std::string ExpertTensors::name(Projection projection, std::int64_t expert, std::string_view suffix) const {
  const std::string& spelled = projection_names_[static_cast<std::size_t>(projection)];
  if (layout_ == ExpertLayout::per_expert) return fmt::format("{}.{}.{}{}", root_, expert, spelled, suffix);
  return fmt::format("{}.{}{}", root_, spelled, suffix);
}

bool ExpertTensors::has(Projection projection, std::int64_t expert, std::string_view suffix) const {
  return checkpoint_->has(name(projection, expert, suffix));
}

Result<TensorView> ExpertTensors::tensor(Projection projection, std::int64_t expert, std::string_view suffix) const {
  const std::string wanted = name(projection, expert, suffix);
  MOETUNE_TRY(auto found, checkpoint_->find(wanted));
  if (!found)
    return fail(fmt::format("{}: there is no tensor {}", checkpoint_->folder(), printable(wanted)),
                {"the checkpoint is not complete, or its config.json belongs to another one"});
  if (found->dtype == Dtype::f4 && !found->shape.empty()) {  // two to a byte along the last dimension
    found->dtype = Dtype::u8;
    found->shape.back() /= 2;
  }
  if (bits(found->dtype) % 8 != 0)
    return fail(
        fmt::format("{} is {}, which no expert weights are known to be", printable(wanted), to_string(found->dtype)));
  return *std::move(found);
}

Result<Grid> ExpertTensors::get(Projection projection, std::int64_t expert, std::string_view suffix, std::int64_t rows,
                                std::int64_t columns) const {
  MOETUNE_TRY(const TensorView found, tensor(projection, expert, suffix));
  const bool down_only = layout_ == ExpertLayout::flat;
  return cut(found, projection, expert, rows, columns, transposed_ && (!down_only || projection == Projection::down));
}

Result<Grid> ExpertTensors::get_bias(Projection projection, std::int64_t expert, std::int64_t rows) const {
  const std::string_view suffix = has(projection, expert, ".bias") ? ".bias" : "_bias";
  MOETUNE_TRY(const TensorView found, tensor(projection, expert, suffix));
  return cut(found, projection, expert, rows, 1, false);
}

Result<Grid> ExpertTensors::cut(const TensorView& tensor, Projection projection, std::int64_t expert, std::int64_t rows,
                                std::int64_t columns, bool turned) const {
  const bool both = layout_ == ExpertLayout::fused && projection != Projection::down;
  const std::int64_t all_rows = both ? 2 * rows : rows;
  std::vector<std::int64_t> wanted = {all_rows, columns};
  if (turned) std::swap(wanted[0], wanted[1]);
  const std::int64_t stored_columns = wanted[1], stored_rows = wanted[0];
  if (layout_ == ExpertLayout::flat) wanted[0] *= geometry_->experts;
  if (layout_ == ExpertLayout::stacked || layout_ == ExpertLayout::fused)
    wanted.insert(wanted.begin(), geometry_->experts);
  std::vector<std::int64_t> shape = with_rank(tensor.shape, wanted.size());
  if (shape.size() == wanted.size() + 1 && !tensor.bytes.empty()) {  // gpt-oss: [E, 2I, H / 32, 16]
    const std::int64_t inner = shape.back();
    shape.pop_back();
    shape.back() *= inner;
  }
  if (shape != wanted)
    return fail(fmt::format("{} has shape [{}]; config.json promises [{}]", printable(tensor.name),
                            fmt::join(tensor.shape, ", "), fmt::join(wanted, ", ")));
  const std::int64_t first = layout_ == ExpertLayout::per_expert ? 0 : expert * stored_rows * stored_columns;
  Grid grid = row_major(tensor, first, stored_rows, stored_columns);
  if (turned) grid = grid.transposed();
  if (!both) return grid;
  const std::int64_t half = projection == Projection::gate ? 0 : 1;
  if (!interleaved_) return grid.part(half * rows, rows, 0, columns);
  grid = grid.part(half, rows, 0, columns);
  grid.row_stride *= 2;
  return grid;
}

}  // namespace moetune
