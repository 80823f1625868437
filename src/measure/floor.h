// The least time physics allows, from ceilings measured on the same device in the same run.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace moetune {

/// What a device can do at best, measured now.
struct Ceilings {
  double read_gb_s = 0;  ///< cold read at the largest size measured
  double copy_gb_s = 0;  ///< bytes read + bytes written
  double bf16_tflops =
      0;  ///< peak of the units that multiply bf16 weights (CPU: fp32 FMA, or bf16 dot products where it has them)
  double fp8_tflops = 0;  ///< 0: the device has no fp8 arithmetic
  struct Read {
    std::int64_t bytes = 0;
    double gb_s = 0;

    bool operator==(const Read&) const = default;
    template <class Self, class Visitor>
    static void fields(Self& self, Visitor&& visit) {
      visit("bytes", self.bytes);
      visit("gb_s", self.gb_s);
    }
  };
  std::vector<Read> reads;  ///< cold reads by size, ascending: a short read is slower than a long one

  bool operator==(const Ceilings&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("read_gb_s", self.read_gb_s);
    visit("copy_gb_s", self.copy_gb_s);
    visit("bf16_tflops", self.bf16_tflops);
    visit("fp8_tflops", self.fp8_tflops);
    visit("reads", self.reads);
  }
};

/// Microseconds of one cold read of that many bytes: time interpolated linearly between the measured sizes, the
/// smallest size's rate below them, the largest's above. Sizes without a positive rate do not count. 0 where nothing
/// was measured.
[[nodiscard]] double read_us(const Ceilings& ceilings, double bytes);

enum class Bound { memory, compute };
template <>
struct EnumNames<Bound> {
  static constexpr std::array<std::string_view, 2> names = {"memory", "compute"};
};

struct Floor {
  double us = 0;
  Bound bound = Bound::memory;
};
/// max(one cold read of `bytes`, `flops` over bf16_tflops).
[[nodiscard]] Floor floor_of(const Ceilings& ceilings, double bytes, double flops);

}  // namespace moetune
