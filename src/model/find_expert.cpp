#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "model/expert_source.h"
#include "model/json_events.h"

namespace moetune {
namespace {

/// One projection of one expert, being looked up.
struct Query {
  const ExpertTensors& tensors;
  WeightSpec spec;
  Projection projection = Projection::gate;
  std::int64_t expert = 0;
  MatrixPart part;

  [[nodiscard]] bool has(std::string_view suffix) const { return tensors.has(projection, expert, suffix); }
  [[nodiscard]] Result<Grid> get(std::string_view suffix, std::int64_t rows, std::int64_t columns) const {
    return tensors.get(projection, expert, suffix, rows, columns);
  }
  /// The first of the suffixes that the checkpoint has; the first of all where it has none, for the message.
  [[nodiscard]] std::string_view pick(std::initializer_list<std::string_view> suffixes) const {
    for (const std::string_view suffix : suffixes)
      if (has(suffix)) return suffix;
    return *suffixes.begin();
  }
};

Status check_dtype(const Grid& grid, std::initializer_list<Dtype> wanted, const WeightSpec& spec) {
  if (std::find(wanted.begin(), wanted.end(), grid.dtype) != wanted.end()) return {};
  std::vector<std::string_view> names;
  for (const Dtype dtype : wanted) names.push_back(to_string(dtype));
  return fail(fmt::format("{} is {}; {} needs {}", printable(grid.tensor), to_string(grid.dtype), describe(spec),
                          fmt::join(names, " or ")),
              {"the number format in config.json is not that of the weights"});
}

/// Blocks of `block` elements that cover a range of a side: the first of them, and how many.
struct BlockRange {
  std::int64_t first = 0, count = 0;
};

/// The range must start with a block, or lie within one.
Result<BlockRange> blocks_of(std::int64_t start, std::int64_t size, std::int64_t block, std::string_view side) {
  if (start % block != 0 && start / block != (start + size - 1) / block)
    return fail(
        fmt::format("this device's part begins at {} {}, inside a block of {} that shares a scale", side, start, block),
        {"cut less with --tp, or spread experts with --ep instead"});
  return BlockRange{start / block, ceil_div(size, block)};
}

struct BlockSizes {
  std::int64_t rows = 1, columns = 1;
};

/// The scales of a format with a scale for every block, cut to the part.
Result<Grid> block_scales(const Query& query, std::string_view suffix, const BlockSizes& block) {
  const MatrixPart& part = query.part;
  MOETUNE_TRY(const BlockRange rows, blocks_of(part.row, part.rows, block.rows, "row"));
  MOETUNE_TRY(const BlockRange columns, blocks_of(part.column, part.columns, block.columns, "column"));
  if (query.tensors.fused() && query.projection != Projection::down && part.all_rows % block.rows != 0)
    return fail(fmt::format("{}: gate and up of {} rows in one tensor share blocks of {} rows",
                            printable(query.tensors.name(query.projection, query.expert, suffix)), part.all_rows,
                            block.rows));
  MOETUNE_TRY(const Grid all,
              query.get(suffix, ceil_div(part.all_rows, block.rows), ceil_div(part.all_columns, block.columns)));
  return all.part(rows.first, rows.count, columns.first, columns.count);
}

/// The elements, `packed` of them to a stored one, cut to the part.
Result<Grid> elements(const Query& query, std::string_view suffix, std::int64_t packed) {
  const MatrixPart& part = query.part;
  MOETUNE_TRY(const Grid all, query.get(suffix, part.all_rows, part.all_columns / packed));
  return all.part(part.row, part.rows, part.column / packed, part.columns / packed);
}

Status find_floats(const Query& query, ExpertSource& source) {
  MOETUNE_TRY(source.data, elements(query, query.pick({".weight", ""}), 1));
  return check_dtype(source.data, {Dtype::bf16, Dtype::f16, Dtype::f32}, query.spec);
}

Status find_fp8(const Query& query, ExpertSource& source) {
  MOETUNE_TRY(source.data, elements(query, query.pick({".weight", ""}), 1));
  MOETUNE_CHECK(check_dtype(source.data, {Dtype::f8_e4m3}, query.spec));
  const std::string_view suffix = query.pick({".weight_scale_inv", ".weight_scale", ".scale", "_scale_inv", "_scale"});
  switch (query.spec.format) {
    case WeightFormat::fp8_tensor: {
      MOETUNE_TRY(source.scales, query.get(suffix, 1, 1));
      break;
    }
    case WeightFormat::fp8_channel: {
      MOETUNE_TRY(source.scales, block_scales(query, suffix, {1, query.part.all_columns}));
      break;
    }
    default: {
      MOETUNE_TRY(source.scales, block_scales(query, suffix, {query.spec.block_n, query.spec.block_k}));
      break;
    }
  }
  return check_dtype(*source.scales, {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f8_e8m0}, query.spec);
}

Status find_mx(const Query& query, ExpertSource& source) {
  const bool fp4 = query.spec.format == WeightFormat::mxfp4;
  if (fp4) {
    MOETUNE_TRY(source.data, elements(query, query.pick({".weight_packed", "_blocks", ".weight"}), 2));
    MOETUNE_CHECK(check_dtype(source.data, {Dtype::u8, Dtype::i8}, query.spec));
  } else {
    MOETUNE_TRY(source.data, elements(query, query.pick({".weight", ""}), 1));
    MOETUNE_CHECK(check_dtype(source.data, {Dtype::f8_e4m3}, query.spec));
  }
  const std::string_view suffix = query.pick({".weight_scale", ".weight_scale_inv", ".scale", "_scales", "_scale"});
  MOETUNE_TRY(source.scales, block_scales(query, suffix, {1, query.spec.block_k}));
  return check_dtype(*source.scales, {Dtype::u8, Dtype::f8_e8m0}, query.spec);
}

/// modelopt stores amax / (6 · 448), which multiplies; compressed-tensors its reciprocal.
Result<float> global_scale(const Query& query, std::string_view suffix, bool reciprocal) {
  MOETUNE_TRY(const Grid grid, query.get(suffix, 1, 1));
  MOETUNE_CHECK(check_dtype(grid, {Dtype::f32}, query.spec));
  float stored = 0.0F;
  std::memcpy(&stored, grid.data, sizeof stored);
  const float scale = reciprocal ? 1.0F / stored : stored;
  if (!std::isfinite(scale) || !(scale > 0.0F))
    return fail(fmt::format("{} is {}; a global scale is positive and finite", printable(grid.tensor), stored),
                {"the checkpoint is damaged"});
  return scale;
}

Status find_nvfp4(const Query& query, ExpertSource& source) {
  const bool packed = query.has(".weight_packed");
  MOETUNE_TRY(source.data, elements(query, packed ? ".weight_packed" : ".weight", 2));
  MOETUNE_CHECK(check_dtype(source.data, {Dtype::u8}, query.spec));
  MOETUNE_TRY(source.scales, block_scales(query, ".weight_scale", {1, query.spec.block_k}));
  MOETUNE_CHECK(check_dtype(*source.scales, {Dtype::f8_e4m3}, query.spec));
  MOETUNE_TRY(source.global_scale, global_scale(query, packed ? ".weight_global_scale" : ".weight_scale_2", packed));
  return {};
}

/// Column k belongs to group k / block_k: what the canonical layout can say.
Status check_group_order(const Query& query, std::string_view suffix) {
  if (!query.has(suffix)) return {};
  MOETUNE_TRY(const Grid order, query.get(suffix, query.part.all_columns, 1));
  MOETUNE_CHECK(check_dtype(order, {Dtype::i32}, query.spec));
  for (std::int64_t k = 0; k < order.rows; ++k) {
    std::int32_t group = 0;
    std::memcpy(&group, order.at(k, 0), sizeof group);
    if (group != k / query.spec.block_k)
      return fail(fmt::format("{}: column {} is of group {}, not {}: groups of scattered columns are not supported",
                              printable(order.tensor), k, group, k / query.spec.block_k),
                  {"take a checkpoint that was quantised without desc_act (actorder)"});
  }
  return {};
}

Status find_compressed_int4(const Query& query, ExpertSource& source) {
  constexpr std::int64_t kWord = 8;
  const MatrixPart& part = query.part;
  MOETUNE_TRY(Grid words, query.get(".weight_packed", part.all_rows, ceil_div(part.all_columns, kWord)));
  MOETUNE_CHECK(check_dtype(words, {Dtype::i32}, query.spec));
  words.dtype = Dtype::u8;  // little-endian words of ascending nibbles are bytes of two columns
  words.column_stride = 1;
  source.data = words.part(part.row, part.rows, part.column / 2, part.columns / 2);
  MOETUNE_TRY(source.scales, block_scales(query, ".weight_scale", {1, query.spec.block_k}));
  if (query.has(".weight_zero_point")) {
    MOETUNE_TRY(const Grid zeros, query.get(".weight_zero_point", ceil_div(part.all_rows, kWord),
                                            ceil_div(part.all_columns, query.spec.block_k)));
    source.zeros = PackedNibbles{zeros.transposed(), PackedNibbles::Along::rows, false, 0};
  }
  return check_group_order(query, ".weight_g_idx");
}

Status find_gptq_or_awq(const Query& query, bool gptq_v2, ExpertSource& source) {
  constexpr std::int64_t kWord = 8;
  const MatrixPart& part = query.part;
  MOETUNE_TRY(const TensorView qweight, query.tensors.tensor(query.projection, query.expert, ".qweight"));
  const bool gptq = !qweight.shape.empty() && qweight.shape[0] == ceil_div(part.all_columns, kWord);
  const std::int64_t packed_rows = ceil_div(part.all_rows, kWord);
  if (gptq) {
    MOETUNE_TRY(Grid words, query.get(".qweight", ceil_div(part.all_columns, kWord), part.all_rows));
    source.nibbles = PackedNibbles{words, PackedNibbles::Along::columns, false, 0};
  } else {
    MOETUNE_TRY(Grid words, query.get(".qweight", part.all_columns, packed_rows));
    source.nibbles = PackedNibbles{words, PackedNibbles::Along::rows, true, 0};
  }
  MOETUNE_CHECK(check_dtype(source.nibbles->words, {Dtype::i32}, query.spec));
  const std::int64_t groups = ceil_div(part.all_columns, query.spec.block_k);
  MOETUNE_TRY(const BlockRange columns, blocks_of(part.column, part.columns, query.spec.block_k, "column"));
  MOETUNE_TRY(const Grid scales, query.get(".scales", groups, part.all_rows));
  source.scales = scales.transposed().part(part.row, part.rows, columns.first, columns.count);
  if (query.has(".qzeros")) {
    MOETUNE_TRY(Grid zeros, query.get(".qzeros", groups, packed_rows));
    const std::uint8_t add = gptq && !gptq_v2 ? 1 : 0;
    source.zeros = PackedNibbles{zeros, PackedNibbles::Along::rows, !gptq, add};
  }
  return check_group_order(query, ".g_idx");
}

Status find_int4(const Query& query, bool gptq_v2, ExpertSource& source) {
  MOETUNE_CHECK(query.has(".qweight") ? find_gptq_or_awq(query, gptq_v2, source) : find_compressed_int4(query, source));
  MOETUNE_CHECK(check_dtype(*source.scales, {Dtype::f32, Dtype::bf16, Dtype::f16}, query.spec));
  if (source.zeros) return check_dtype(source.zeros->words, {Dtype::i32}, query.spec);
  if (!query.spec.zero_point) return {};
  return fail(fmt::format("{}: there are no zero points, which {} needs",
                          printable(query.tensors.name(query.projection, query.expert, "")), describe(query.spec)));
}

Status find_weights(const Query& query, bool gptq_v2, ExpertSource& source) {
  if (is_four_bit(query.spec.format) && (query.part.column % 2 != 0 || query.part.all_columns % 2 != 0))
    return fail(fmt::format("column {} of {} is not the first of the two that share a byte", query.part.column,
                            query.part.all_columns));
  switch (query.spec.format) {
    case WeightFormat::bf16:
    case WeightFormat::fp16:
      return find_floats(query, source);
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
    case WeightFormat::fp8_block:
      return find_fp8(query, source);
    case WeightFormat::mxfp8:
    case WeightFormat::mxfp4:
      return find_mx(query, source);
    case WeightFormat::nvfp4:
      return find_nvfp4(query, source);
    case WeightFormat::int4:
      return find_int4(query, gptq_v2, source);
  }
  return {};
}

}  // namespace

Result<ExpertSource> find_expert(const ExpertTensors& tensors, const WeightSpec& spec, bool bias, Projection projection,
                                 std::int64_t expert, const MatrixPart& part, bool gptq_v2) {
  const Query query{tensors, spec, projection, expert, part};
  ExpertSource source;
  source.part = part;
  MOETUNE_CHECK(find_weights(query, gptq_v2, source));
  if (bias) {
    MOETUNE_TRY(const Grid all, tensors.get_bias(projection, expert, part.all_rows));
    MOETUNE_CHECK(check_dtype(all, {Dtype::f32, Dtype::bf16, Dtype::f16}, spec));
    source.bias = all.part(part.row, part.rows, 0, 1);
  }
  return source;
}

}  // namespace moetune
