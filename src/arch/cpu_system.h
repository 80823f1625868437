// What Linux says about processors, caches, memory and the limits a container puts on them. Every function reads below
// `root`: "" is this machine, anything else a folder with a copy of /proc and /sys. What cannot be read is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moetune {

/// Numbers of the processors the scheduler lets this process use; empty where it does not say.
[[nodiscard]] std::vector<int> allowed_processors();

/// The processor's name: "model name" of /proc/cpuinfo, on Arm its implementer and part numbers.
[[nodiscard]] std::optional<std::string> processor_name(const std::string& root);

/// Processors' worth of time that the cgroups above this process (v1 or v2) grant it, 1.5 being one and a half; absent
/// where none limits it.
[[nodiscard]] std::optional<double> cgroup_processors(const std::string& root);

/// Memory in bytes that those cgroups grant; absent where none limits it.
[[nodiscard]] std::optional<std::int64_t> cgroup_memory_bytes(const std::string& root);

/// MemTotal of /proc/meminfo in bytes.
[[nodiscard]] std::optional<std::int64_t> total_memory_bytes(const std::string& root);

struct CacheSizes {
  std::optional<std::int64_t> l1_bytes;  ///< data cache of the first processor
  std::optional<std::int64_t> l2_bytes;  ///< the one that the first processor reaches
  std::optional<std::int64_t> l3_bytes;  ///< all that the processors reach together, each counted once
};
/// From /sys/devices/system/cpu, for the processors given.
[[nodiscard]] CacheSizes cache_sizes(const std::string& root, std::span<const int> processors);

}  // namespace moetune
