// Names that people type: how they are compared, and which known ones are near an unknown one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

/// The longest name that is looked up, in bytes. Longer ones are refused before any work is done on them.
inline constexpr std::size_t kMaxNameBytes = 128;

/// The name without case (ASCII), spaces, '_', '-' and a leading "NVIDIA" or "GeForce": equal keys name the same thing.
[[nodiscard]] std::string name_key(std::string_view name);

/// Levenshtein distance in bytes: inserted, removed and replaced bytes, one each. Time is the product of both lengths.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// Up to `count` of `known`, nearest first: those that contain the name, then those within a third of its length in
/// edits. Compared by name_key; each key is answered once.
[[nodiscard]] std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> known,
                                                     std::size_t count);

/// The name in quotes for a message: at most 60 bytes of it, bytes outside printable ASCII written as \xNN.
[[nodiscard]] std::string quoted_name(std::string_view name);

}  // namespace moetune
