// When a measurement has seen enough.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace moetune {

struct StopRule {
  std::int64_t min_samples = 7;
  std::int64_t max_samples = 200;
  double relative_noise = 0.01;  ///< stop when the median's standard error is below this part of it
  double min_s = 0.05;           ///< measured time: too short a series sees one state of the machine only
  double max_s = 1.0;

  bool operator==(const StopRule&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("min_samples", self.min_samples);
    visit("max_samples", self.max_samples);
    visit("relative_noise", self.relative_noise);
    visit("min_s", self.min_s);
    visit("max_s", self.max_s);
  }
};

enum class StopCause { not_yet, quiet, samples, time };
template <>
struct EnumNames<StopCause> {
  static constexpr std::array<std::string_view, 4> names = {"not_yet", "quiet", "samples", "time"};
};

/// Fed with samples, says when to stop: "quiet" once the noise is small enough after the least number and time,
/// "samples" or "time" at the limits. Judged after each sample, so that the slowest candidate still gets one number.
/// What is no time (NaN, infinite, not positive) counts as a sample only, so that a broken clock ends too.
class Stopper {
 public:
  explicit Stopper(StopRule rule) : rule_(rule) {}
  void add(double us);
  [[nodiscard]] bool done() const { return cause_ != StopCause::not_yet; }
  [[nodiscard]] StopCause why() const { return cause_; }
  [[nodiscard]] const std::vector<double>& samples() const { return samples_; }

 private:
  [[nodiscard]] StopCause judge() const;

  StopRule rule_;
  std::vector<double> samples_;
  double total_s_ = 0;
  StopCause cause_ = StopCause::not_yet;
};

}  // namespace moetune
