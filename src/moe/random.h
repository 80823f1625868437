// Random numbers that are the same on every machine: integers only, no standard distributions.
#pragma once

#include <cstdint>

namespace moetune {

/// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014). Any seed is a good seed.
class SplitMix64 {
 public:
  explicit constexpr SplitMix64(std::uint64_t seed) : state_(seed) {}

  [[nodiscard]] constexpr std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, bound), each value equally likely; bound > 0. Lemire, "Fast Random Integer Generation in an
  /// Interval", 2019, on 32 bits: numbers that would favour some values are drawn again.
  [[nodiscard]] constexpr std::uint32_t below(std::uint32_t bound) {
    const std::uint32_t unfair = (0U - bound) % bound;
    for (;;) {
      const std::uint64_t product = (next() >> 32) * bound;
      if (static_cast<std::uint32_t>(product) >= unfair) return static_cast<std::uint32_t>(product >> 32);
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace moetune
