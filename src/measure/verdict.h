// Whether one timing beats another by more than the noise.
#pragma once

#include <array>
#include <string_view>

#include "base/fields.h"
#include "measure/stats.h"

namespace moetune {

enum class Speed { faster, tie, slower };
template <>
struct EnumNames<Speed> {
  static constexpr std::array<std::string_view, 3> names = {"faster", "tie", "slower"};
};

/// The least relative difference that counts, whatever the samples say: below it, the same binary measured twice
/// differs too.
inline constexpr double kLeastGain = 0.03;

/// How `candidate` compares with `baseline`: faster or slower only past both kLeastGain of the baseline's median and
/// two standard errors of the difference of the medians (the root of the sum of both errors' squares). Where either has
/// no usable sample nothing is known to be faster: tie.
[[nodiscard]] Speed compare(const Summary& candidate, const Summary& baseline);

}  // namespace moetune
