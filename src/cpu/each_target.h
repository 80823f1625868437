// For tests: the same check on every instruction set that was compiled and that this processor has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cstdint>
#include <string>
#include <vector>

namespace moetune {

/// Lets kernels be chosen for `target` or worse until the end of its life. Files compile for different sets of targets:
/// one that lacks this one takes its next best.
class TargetScope {
 public:
  explicit TargetScope(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(0);
    hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~(target - 1));
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  TargetScope(const TargetScope&) = delete;
  TargetScope& operator=(const TargetScope&) = delete;
  ~TargetScope() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

/// The targets that any kernel here is compiled for, best first.
inline std::vector<std::int64_t> kernel_targets() {
  std::vector<std::int64_t> targets;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets())
    if ((target & (HWY_SSSE3 | HWY_SSE4)) == 0) targets.push_back(target);
  return targets;
}

/// Calls body() with kernels chosen for each target; its name is in every failure message.
template <class Body>
void for_each_target(Body&& body) {
  for (const std::int64_t target : kernel_targets()) {
    SCOPED_TRACE(std::string("instruction set ") + hwy::TargetName(target));
    const TargetScope scope(target);
    body();
  }
}

}  // namespace moetune
