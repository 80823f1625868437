// What the config spaces of both backends share.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/target.h"
#include "backend/config.h"
#include "model/problem.h"

namespace moetune {

/// Processors to use on that target; at least 1.
[[nodiscard]] std::int64_t processors(const Target& target);

/// Powers of two below the number of processors, and that number.
[[nodiscard]] Axis threads_axis(const Target& target);
[[nodiscard]] Axis schedule_axis();

/// Powers of two from 1 up to `limit`, and the first that is not below it, at most `most`.
[[nodiscard]] std::vector<std::int64_t> powers_of_two(std::int64_t limit, std::int64_t most);

/// Bytes of one row of K weights with its scales.
[[nodiscard]] double row_bytes(const WeightSpec& spec, std::int64_t k);

/// Rows of a tile of that many bytes: at least one, a multiple of `step` unless that is more than all `n`.
[[nodiscard]] std::int64_t tile_rows(const WeightSpec& spec, std::int64_t n, std::int64_t k, std::int64_t bytes,
                                     std::int64_t step);

/// An Error that names the axis and its values where the config is not in the space.
[[nodiscard]] Status check_config(const Space& space, const Config& config);

}  // namespace moetune
