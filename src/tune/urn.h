// A space as numbered combinations, and an urn to draw them from without replacement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <unordered_map>

#include "backend/config.h"

namespace moetune {

/// Uniform in 0 … count-1, count at least 1. The standard's distributions differ between libraries; this does not.
[[nodiscard]] inline std::size_t pick(std::mt19937_64& random, std::size_t count) {
  return static_cast<std::size_t>(random() % count);
}

/// Uniform in [0, 1).
[[nodiscard]] inline double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

/// All combinations of a space's values, numbered: an axis is a digit, the last one the least significant.
class Combinations {
 public:
  explicit Combinations(Space space);

  /// Admitted or not; at most 2^62, the numbers above are never reached.
  [[nodiscard]] std::uint64_t count() const { return count_; }
  /// Nothing where the space does not admit it.
  [[nodiscard]] std::optional<Config> at(std::uint64_t number) const;

 private:
  Space space_;
  std::uint64_t count_ = 1;
};

/// Draws every combination once, in random order, in memory proportional to what was drawn.
class Urn {
 public:
  explicit Urn(Space space);

  /// The next combination that the space admits; nothing: the urn is empty.
  [[nodiscard]] std::optional<Config> take(std::mt19937_64& random);
  /// Combinations left, admitted or not.
  [[nodiscard]] std::uint64_t left() const { return left_; }

 private:
  Combinations combinations_;
  std::uint64_t left_;
  // Fisher and Yates' shuffle of 0 … count-1, of which only the places are kept that differ from their number.
  std::unordered_map<std::uint64_t, std::uint64_t> moved_;
};

}  // namespace moetune
