#include <sys/utsname.h>

#include <algorithm>
#include <thread>

#include "arch/cpu_features.h"
#include "arch/cpu_system.h"
#include "arch/target.h"

namespace moetune {
namespace {

// A fraction of a processor is left idle: one thread more than the quota pays for gets all of them throttled together.
std::int64_t usable_processors(std::size_t allowed) {
  auto count = static_cast<std::int64_t>(allowed);
  if (count == 0) count = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  if (const auto quota = cgroup_processors(""); quota && *quota < static_cast<double>(count))
    count = static_cast<std::int64_t>(*quota);
  return std::max<std::int64_t>(1, count);
}

std::optional<std::int64_t> usable_memory() {
  const auto total = total_memory_bytes("");
  const auto limit = cgroup_memory_bytes("");
  if (total && limit) return std::min(*total, *limit);
  return total ? total : limit;
}

std::string machine_name() {
  utsname names{};
  return ::uname(&names) == 0 ? std::string(names.machine) + " processor" : "processor";
}

}  // namespace

Target probe_cpu() {
  const std::vector<int> allowed = allowed_processors();
  const CacheSizes caches = cache_sizes("", allowed);
  CpuFeatures features = cpu_features();
  Target target;
  target.kind = TargetKind::cpu;
  target.name = processor_name("").value_or(machine_name());
  target.simd = std::move(features.simd);
  target.features = std::move(features.flags);
  target.cores = usable_processors(allowed.size());
  target.l1_bytes = caches.l1_bytes;
  target.l2_bytes = caches.l2_bytes;
  target.l3_bytes = caches.l3_bytes;
  target.memory_bytes = usable_memory();
  target.source = "probed";
  return target;
}

}  // namespace moetune
