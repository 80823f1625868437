// Weights in the order in which a lane of a warp consumes them (kernels/abi/moe_args.h, kernels/common/fragment.cuh).
// Done once, on the host.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/reason.h"
#include "model/layer.h"

namespace moetune {

/// A stack of expert matrices as the kernels read it.
struct PackedStack {
  std::string_view format;  ///< the enumerator of Format in kernels/common/fragment.cuh, e.g. "nvfp4", "int4_group32"
  std::int64_t experts = 0, row_tiles = 0, chunks = 0, columns = 0;
  Buffer data;                   ///< [experts][row_tiles][chunks][units][32 lanes][16 bytes]
  Buffer scales;                 ///< as the format has them; may be empty
  std::vector<float> row_scale;  ///< [experts][row_tiles * 16], or empty
  std::vector<float> bias;       ///< [experts][row_tiles * 16], or empty
};

/// The enumerator of Format in kernels/common/fragment.cuh for that format, e.g. "nvfp4", "int4_group32".
[[nodiscard]] std::string_view packed_format(const WeightSpec& spec);

/// 16-byte units that a lane holds of a chunk (kernels/abi/moe_args.h): 4 for 16 bits a weight, 2 for 8, 1 for 4.
[[nodiscard]] std::int64_t packed_units(const WeightSpec& spec);

/// Why the kernels have no form of that format (block sizes that do not fit a 16 × 64 tile); empty: they have one.
[[nodiscard]] Reasons why_not_packed(const WeightSpec& spec);

/// The first projection: row tiles of gate and up alternate; a layer without a gate has the up tiles alone. Errors: a
/// scale beyond what the format's kernels can represent, with its place; no memory.
[[nodiscard]] Result<PackedStack> pack_up(const Layer& layer);
[[nodiscard]] Result<PackedStack> pack_down(const Layer& layer);

}  // namespace moetune
