// This machine's CPU as a place to run on, and what it can do at best.
#pragma once

#include <vector>

#include "backend/backend.h"

namespace moetune {

class CpuDevice : public Device {
 public:
  [[nodiscard]] TargetKind kind() const override { return TargetKind::cpu; }
  [[nodiscard]] std::vector<Target> targets() const override;
  /// About three seconds and 0.7 GB (less where the machine has less free). Cold reads of 1 to 600 MB: at each size the
  /// best of several ways to read and numbers of threads, each the median of several reads of memory that was last
  /// touched more than a cache ago. Arithmetic: the best of several runs of some 20 ms on all threads.
  [[nodiscard]] Result<Ceilings> measure(const Target& target) const override;
};

}  // namespace moetune
