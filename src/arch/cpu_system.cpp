#include "arch/cpu_system.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <set>
#include <utility>

namespace moetune {
namespace {

constexpr std::size_t kMaxRead = std::size_t{1} << 20;
constexpr int kMaxProcessors = 65536;
constexpr int kMaxCachesPerProcessor = 16;

// Files of /proc and /sys report no useful size, so they are read until they end.
std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text;
  std::array<char, 4096> block;
  while (text.size() < kMaxRead) {
    file.read(block.data(), block.size());
    text.append(block.data(), static_cast<std::size_t>(file.gcount()));
    if (!file) break;
  }
  return text;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// The whole of `text` as a whole number.
std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto end = text.find(separator);
    if (end != 0) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

std::optional<std::int64_t> read_number(const std::string& path) {
  const auto text = read_text(path);
  return text ? number(trimmed(*text)) : std::nullopt;
}

/// "key : value" of a file with one a line, the first of that key.
std::optional<std::string> value_of(std::string_view text, std::string_view key) {
  for (const auto line : split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon != std::string_view::npos && trimmed(line.substr(0, colon)) == key)
      return std::string(trimmed(line.substr(colon + 1)));
  }
  return std::nullopt;
}

template <class T>
void keep_least(std::optional<T>& least, std::optional<T> value) {
  if (value && (!least || *value < *least)) least = value;
}

// ------------------------------------------------------------------------------------------------------- cgroups

struct CgroupFolders {
  std::vector<std::string> paths;  // the process's own first, then its parents up to the mount
  bool v2 = false;
};

bool lists(std::string_view controllers, std::string_view wanted) {
  const auto parts = split(controllers, ',');
  return std::find(parts.begin(), parts.end(), wanted) != parts.end();
}

/// This process's path in the hierarchy of the controller (v1) or in the unified one (v2), from /proc/self/cgroup.
std::optional<std::string> cgroup_path(std::string_view text, std::string_view controller, bool v2) {
  for (const auto line : split(text, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() : lists(controllers, controller)) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

/// mountinfo writes blanks and backslashes in paths as three octal digits.
std::string unescaped(std::string_view text) {
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const auto digits = text.substr(std::min(i + 1, text.size()), 3);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 8);
    if (text[i] == '\\' && digits.size() == 3 && error == std::errc() && end == digits.data() + 3 && code < 256) {
      path += static_cast<char>(static_cast<unsigned char>(code));
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

/// Where below the mount the process's cgroup is. A path that the mount does not show (another namespace) is its top.
std::string below_mount(const std::string& path, const std::string& mount_root) {
  if (path.find("..") != std::string::npos) return "";
  const std::string root = mount_root == "/" ? "" : mount_root;
  if (!path.starts_with(root)) return "";
  const std::string rest = path.substr(root.size());
  if (rest.empty() || rest == "/") return "";
  return rest.front() == '/' ? rest : "";
}

/// The folders that hold the controller's limits, one entry a mount.
std::vector<CgroupFolders> cgroup_folders(const std::string& root, std::string_view controller) {
  const auto own = read_text(root + "/proc/self/cgroup");
  const auto mounts = read_text(root + "/proc/self/mountinfo");
  std::vector<CgroupFolders> all;
  if (!own || !mounts) return all;
  for (const auto line : split(*mounts, '\n')) {
    const auto dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = split(line.substr(0, dash), ' ');  // id, parent, device, root, mount point, options …
    const auto after = split(line.substr(dash + 3), ' ');  // type, source, options of the file system
    if (before.size() < 5 || after.size() < 3) continue;
    const bool v2 = after[0] == "cgroup2";
    if (!v2 && (after[0] != "cgroup" || !lists(after[2], controller))) continue;
    const auto path = cgroup_path(*own, controller, v2);
    if (!path) continue;
    CgroupFolders folders{{}, v2};
    const std::string point = root + unescaped(before[4]);
    std::string below = below_mount(*path, unescaped(before[3]));
    while (!below.empty()) {
      folders.paths.push_back(point + below);
      below.resize(below.rfind('/'));
    }
    folders.paths.push_back(point);
    all.push_back(std::move(folders));
  }
  return all;
}

std::optional<double> ratio(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// "150000 100000": microseconds in every period; "max 100000" is no limit.
std::optional<double> quota_v2(const std::string& folder) {
  const auto text = read_text(folder + "/cpu.max");
  if (!text) return std::nullopt;
  const auto parts = split(trimmed(*text), ' ');
  return parts.size() == 2 ? ratio(number(parts[0]), number(parts[1])) : std::nullopt;
}

std::optional<double> quota_v1(const std::string& folder) {
  return ratio(read_number(folder + "/cpu.cfs_quota_us"), read_number(folder + "/cpu.cfs_period_us"));
}

// -------------------------------------------------------------------------------------------------------- caches

/// "32768K" in bytes.
std::optional<std::int64_t> size_in_bytes(std::string_view text) {
  int shift = 0;
  if (!text.empty()) {
    if (text.back() == 'K') shift = 10;
    if (text.back() == 'M') shift = 20;
    if (text.back() == 'G') shift = 30;
  }
  if (shift != 0) text.remove_suffix(1);
  const auto count = number(text);
  if (!count || *count <= 0 || *count > (std::int64_t{1} << 30)) return std::nullopt;
  return *count << shift;
}

struct Cache {
  std::int64_t level = 0;
  std::int64_t bytes = 0;
  std::string shared;  // which processors share it
};

/// The processor's data and unified caches.
std::vector<Cache> caches_of(const std::string& root, int processor) {
  std::vector<Cache> caches;
  for (int index = 0; index < kMaxCachesPerProcessor; ++index) {
    const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}/cache/index{}/", root, processor, index);
    const auto level = read_number(folder + "level");
    if (!level) break;
    const auto type = read_text(folder + "type");
    const auto size = read_text(folder + "size");
    if (!type || !size || trimmed(*type) == "Instruction") continue;
    const auto bytes = size_in_bytes(trimmed(*size));
    if (bytes) caches.push_back({*level, *bytes, read_text(folder + "shared_cpu_list").value_or("")});
  }
  return caches;
}

}  // namespace

std::vector<int> allowed_processors() {
  std::vector<int> processors;
  for (std::size_t count = 1024; count <= std::size_t{kMaxProcessors}; count *= 2) {
    cpu_set_t* set = CPU_ALLOC(count);
    if (!set) return processors;
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    const bool fits = ::sched_getaffinity(0, bytes, set) == 0;
    for (std::size_t i = 0; fits && i < count; ++i)
      if (CPU_ISSET_S(i, bytes, set)) processors.push_back(static_cast<int>(i));
    CPU_FREE(set);
    if (fits) break;
  }
  return processors;
}

std::optional<std::string> processor_name(const std::string& root) {
  const auto text = read_text(root + "/proc/cpuinfo");
  if (!text) return std::nullopt;
  if (auto name = value_of(*text, "model name"); name && !name->empty()) return name;
  const auto implementer = value_of(*text, "CPU implementer");
  const auto part = value_of(*text, "CPU part");
  if (!implementer || !part) return std::nullopt;
  return fmt::format("Arm implementer {} part {}", *implementer, *part);
}

std::optional<double> cgroup_processors(const std::string& root) {
  std::optional<double> least;
  for (const auto& folders : cgroup_folders(root, "cpu"))
    for (const auto& path : folders.paths) keep_least(least, folders.v2 ? quota_v2(path) : quota_v1(path));
  return least;
}

std::optional<std::int64_t> cgroup_memory_bytes(const std::string& root) {
  std::optional<std::int64_t> least;
  for (const auto& folders : cgroup_folders(root, "memory"))
    for (const auto& path : folders.paths)
      keep_least(least, read_number(path + (folders.v2 ? "/memory.max" : "/memory.limit_in_bytes")));
  return least;
}

std::optional<std::int64_t> total_memory_bytes(const std::string& root) {
  const auto text = read_text(root + "/proc/meminfo");
  if (!text) return std::nullopt;
  const auto value = value_of(*text, "MemTotal");  // "24683584 kB", by which Linux means KiB
  if (!value || !value->ends_with(" kB")) return std::nullopt;
  const auto count = number(value->substr(0, value->size() - 3));
  if (!count || *count <= 0 || *count > (std::int64_t{1} << 50)) return std::nullopt;
  return *count << 10;
}

CacheSizes cache_sizes(const std::string& root, std::span<const int> processors) {
  CacheSizes sizes;
  std::set<std::string> counted;
  for (const int processor : processors) {
    for (const auto& cache : caches_of(root, processor)) {
      if (cache.level == 1 && processor == processors.front()) sizes.l1_bytes = cache.bytes;
      if (cache.level == 2 && processor == processors.front()) sizes.l2_bytes = cache.bytes;
      if (cache.level == 3 && counted.insert(cache.shared).second)
        sizes.l3_bytes = sizes.l3_bytes.value_or(0) + cache.bytes;
    }
  }
  return sizes;
}

}  // namespace moetune
