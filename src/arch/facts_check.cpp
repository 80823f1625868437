#include "arch/facts_check.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "arch/names.h"

namespace moetune {
namespace {

bool digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "12.8", "575.51.03"; a driver branch may be its number alone.
bool is_version(std::string_view text) {
  while (true) {
    const auto dot = text.find('.');
    if (!digits(text.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

bool is_capability(std::string_view text) {
  const auto dot = text.find('.');
  return dot != std::string_view::npos && dot <= 2 && digits(text.substr(0, dot)) && text.size() == dot + 2 &&
         digits(text.substr(dot + 1));
}

/// Names of the struct's fields that hold something.
template <class T>
std::set<std::string, std::less<>> fields_present(const T& value) {
  std::set<std::string, std::less<>> present;
  T::fields(value, [&](std::string_view name, const auto& field) {
    bool has = true;
    if constexpr (requires { field.has_value(); }) has = field.has_value();
    if constexpr (detail::kMayBeAbsent<std::remove_cvref_t<decltype(field)>> && requires { field.empty(); })
      has = !field.empty();
    if (has) present.emplace(name);
  });
  return present;
}

template <class T>
Status check_unverified(const TomlReader& file, const std::string& where, const T& entry) {
  const auto present = fields_present(entry);
  for (const auto& key : entry.unverified)
    if (!present.contains(key))
      return file.fail_at(entry.line, where + ".unverified", fmt::format("'{}' is not a key given here", key));
  return {};
}

Status check_limits(const TomlReader& file, const Arch& arch, const std::string& where) {
  if (arch.smem_per_sm_bytes.has_value() != arch.smem_per_block_bytes.has_value())
    return file.fail_at(arch.line, where, "gives one of smem_per_sm_bytes and smem_per_block_bytes");
  const std::int64_t reserved = arch.smem_reserved_per_block_bytes.value_or(0);
  if (arch.smem_per_sm_bytes && *arch.smem_per_block_bytes + reserved > *arch.smem_per_sm_bytes)
    return file.fail_at(arch.line, where + ".smem_per_block_bytes",
                        fmt::format("{} + {} reserved exceed the {} of an SM", *arch.smem_per_block_bytes, reserved,
                                    *arch.smem_per_sm_bytes));
  for (const auto* version : {&arch.last_toolkit, &arch.oldest_driver})
    if (*version && !is_version(**version))
      return file.fail_at(arch.line, where, fmt::format("'{}' is not a version", **version));
  if (!is_version(arch.oldest_toolkit))
    return file.fail_at(arch.line, where + ".oldest_toolkit",
                        fmt::format("'{}' is not a version", arch.oldest_toolkit));
  return {};
}

Status check_targets(const TomlReader& file, const Arch& arch, const std::string& where, std::set<std::string>& seen) {
  bool own = false;
  for (const auto& target : arch.targets) {
    const auto parsed = parse_target_name(name_key(target.name));
    if (!parsed || parsed->target != target.name)
      return file.fail_at(arch.line, where + ".targets", fmt::format("'{}' is not written as sm_120a", target.name));
    if (!is_version(target.toolkit))
      return file.fail_at(arch.line, where + ".targets", fmt::format("'{}' is not a version", target.toolkit));
    if (!seen.insert(target.name).second)
      return file.fail_at(arch.line, where + ".targets", fmt::format("'{}' is listed twice", target.name));
    own = own || parsed->compute_capability == arch.compute_capability;
  }
  if (!own)
    return file.fail_at(arch.line, where + ".targets", fmt::format("none is named after {}", arch.compute_capability));
  return {};
}

bool has_target_ending(const Arch& arch, char suffix) {
  return std::any_of(arch.targets.begin(), arch.targets.end(),
                     [&](const CompileTarget& target) { return target.name.back() == suffix; });
}

Status check_row(const TomlReader& file, const FeatureRow& row, const std::string& where, const Facts& facts) {
  const std::string targets = row.targets.value_or("");
  if ((row.support == Support::no) != targets.empty())
    return file.fail_at(row.line, where + ".targets", "is given where support is not \"no\", and only there");
  if (!targets.empty() && targets != "any" && targets != "f/a" && targets != "a")
    return file.fail_at(row.line, where + ".targets", fmt::format("'{}' is none of any, f/a, a", targets));
  for (const auto& capability : row.capabilities) {
    const Arch* arch = facts.arch(capability);
    if (!arch) return file.fail_at(row.line, where + ".capabilities", fmt::format("'{}' has no [[arch]]", capability));
    if ((targets.ends_with('a') && !has_target_ending(*arch, 'a')) ||
        (targets.starts_with('f') && !has_target_ending(*arch, 'f')))
      return file.fail_at(row.line, where + ".targets", fmt::format("{} has no '{}' target", capability, targets));
  }
  return {};
}

Status check_coverage(const TomlReader& file, const Feature& feature, const std::string& where, const Facts& facts) {
  for (const auto& arch : facts.archs) {
    std::ptrdiff_t answers = 0;
    for (const auto& row : feature.on)
      answers += std::count(row.capabilities.begin(), row.capabilities.end(), arch.compute_capability);
    if (answers != 1)
      return file.fail_at(feature.line, where + ".on",
                          fmt::format("answers {} times for {}, once is due", answers, arch.compute_capability));
  }
  return {};
}

Status check_smem(const TomlReader& file, const Gpu& gpu, const std::string& where, const Arch& arch) {
  const auto differ = [](const std::optional<std::int64_t>& a, const std::optional<std::int64_t>& b) {
    return a && b && *a != *b;
  };
  if (differ(gpu.smem_per_sm_bytes, arch.smem_per_sm_bytes))
    return file.fail_at(gpu.line, where + ".smem_per_sm_bytes",
                        fmt::format("{} differs from the {} of {}", *gpu.smem_per_sm_bytes, *arch.smem_per_sm_bytes,
                                    arch.compute_capability));
  if (differ(gpu.smem_per_block_bytes, arch.smem_per_block_bytes))
    return file.fail_at(gpu.line, where + ".smem_per_block_bytes",
                        fmt::format("{} differs from the {} of {}", *gpu.smem_per_block_bytes,
                                    *arch.smem_per_block_bytes, arch.compute_capability));
  return {};
}

Status add_product(const TomlReader& file, Facts& facts, std::size_t place, const std::string& name,
                   const std::string& where) {
  const Gpu& gpu = facts.gpus[place];
  const std::string key = name_key(name);
  if (key.empty() || name.size() > kMaxNameBytes)
    return file.fail_at(gpu.line, where, fmt::format("{} cannot be looked up", quoted_name(name)));
  if (parse_target_name(key))
    return file.fail_at(gpu.line, where, fmt::format("{} reads as a compile target", quoted_name(name)));
  const auto [entry, added] = facts.products.emplace(key, place);
  if (!added)
    return file.fail_at(gpu.line, where,
                        fmt::format("{} already names '{}' of line {}", quoted_name(name),
                                    facts.gpus[entry->second].name, facts.gpus[entry->second].line));
  return {};
}

Status add_families(const TomlReader& file, Facts& facts, std::size_t place, const std::string& where) {
  const Gpu& gpu = facts.gpus[place];
  for (const auto& name : gpu.family) {
    if (name_key(name).empty() || name.size() > kMaxNameBytes)
      return file.fail_at(gpu.line, where + ".family", fmt::format("{} cannot be looked up", quoted_name(name)));
    auto& family = facts.families[name_key(name)];
    if (!family.gpus.empty() && family.gpus.back() == place)
      return file.fail_at(gpu.line, where + ".family", fmt::format("{} is listed twice", quoted_name(name)));
    if (family.name.empty()) family.name = name;
    family.gpus.push_back(place);
  }
  for (const auto& name : gpu.default_of) {
    const auto found = facts.families.find(name_key(name));
    if (found == facts.families.end() || found->second.gpus.back() != place)
      return file.fail_at(gpu.line, where + ".default_of",
                          fmt::format("{} is not in this product's family", quoted_name(name)));
    if (found->second.meant)
      return file.fail_at(
          gpu.line, where + ".default_of",
          fmt::format("{} already means '{}'", quoted_name(name), facts.gpus[*found->second.meant].name));
    found->second.meant = place;
  }
  return {};
}

std::string place_of(std::string_view list, std::size_t index) { return fmt::format("{}[{}]", list, index); }

}  // namespace

std::optional<TargetName> parse_target_name(std::string_view key) {
  const bool prefixed = key.starts_with("sm") || key.starts_with("compute");
  if (prefixed) key.remove_prefix(key.starts_with("sm") ? 2 : 7);
  std::string suffix;
  if (key.ends_with('a') || key.ends_with('f')) {
    suffix = key.back();
    key.remove_suffix(1);
  }
  std::string number(key);
  if (const auto dot = number.find('.'); dot != std::string::npos) {
    if (dot + 2 != number.size()) return std::nullopt;
    number.erase(dot, 1);
  }
  if (!digits(number) || number.size() < 2 || number.size() > 3 || number.front() == '0') return std::nullopt;
  return TargetName{number.substr(0, number.size() - 1) + "." + number.back(), "sm_" + number + suffix};
}

Status check_archs(const TomlReader& file, const Facts& facts) {
  std::set<std::string> capabilities;
  std::set<std::string> targets;
  for (std::size_t i = 0; i < facts.archs.size(); ++i) {
    const Arch& arch = facts.archs[i];
    const std::string where = place_of("arch", i);
    if (!is_capability(arch.compute_capability))
      return file.fail_at(arch.line, where + ".compute_capability",
                          fmt::format("{} is not written as 12.0", quoted_name(arch.compute_capability)));
    if (!capabilities.insert(arch.compute_capability).second)
      return file.fail_at(arch.line, where + ".compute_capability",
                          fmt::format("'{}' is listed twice", arch.compute_capability));
    MOETUNE_CHECK(check_limits(file, arch, where));
    MOETUNE_CHECK(check_targets(file, arch, where, targets));
    MOETUNE_CHECK(check_unverified(file, where, arch));
  }
  return {};
}

Status check_features(const TomlReader& file, const Facts& facts) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < facts.features.size(); ++i) {
    const Feature& feature = facts.features[i];
    const std::string where = place_of("feature", i);
    if (!names.insert(feature.name).second)
      return file.fail_at(feature.line, where + ".name", fmt::format("{} is listed twice", quoted_name(feature.name)));
    for (std::size_t r = 0; r < feature.on.size(); ++r)
      MOETUNE_CHECK(check_row(file, feature.on[r], fmt::format("{}.on[{}]", where, r), facts));
    MOETUNE_CHECK(check_coverage(file, feature, where, facts));
  }
  return {};
}

Status check_gpus(const TomlReader& file, const Facts& facts) {
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
    const Gpu& gpu = facts.gpus[i];
    const std::string where = place_of("gpu", i);
    const Arch* arch = facts.arch(gpu.compute_capability);
    if (!arch)
      return file.fail_at(gpu.line, where + ".compute_capability",
                          fmt::format("{} is not in data/archs.toml", quoted_name(gpu.compute_capability)));
    if (!gpu.date.ok()) return file.fail_at(gpu.line, where + ".date", "is no day of the calendar");
    for (const auto* count : {&gpu.multiprocessors, &gpu.memory_mib, &gpu.l2_mib})
      if (*count && **count == 0) return file.fail_at(gpu.line, where, "a count of 0; leave out what is not known");
    MOETUNE_CHECK(check_smem(file, gpu, where, *arch));
    MOETUNE_CHECK(check_unverified(file, where, gpu));
  }
  return {};
}

Status index_names(const TomlReader& file, Facts& facts) {
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
    const std::string where = place_of("gpu", i);
    MOETUNE_CHECK(add_product(file, facts, i, facts.gpus[i].name, where + ".name"));
    for (const auto& alias : facts.gpus[i].aliases)
      MOETUNE_CHECK(add_product(file, facts, i, alias, where + ".aliases"));
    MOETUNE_CHECK(add_families(file, facts, i, where));
  }
  for (const auto& [key, family] : facts.families) {
    const std::int64_t line = facts.gpus[family.gpus.front()].line;
    if (facts.products.contains(key) || parse_target_name(key))
      return file.fail_at(line, "family", fmt::format("{} also names one product or target", quoted_name(family.name)));
    if (family.gpus.size() < 2)
      return file.fail_at(line, "family",
                          fmt::format("{} covers one product only: make it an alias of it", quoted_name(family.name)));
  }
  return {};
}

}  // namespace moetune
