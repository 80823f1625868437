// Lookups in the facts: a GPU by what people call it, a feature by capability.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arch/facts.h"
#include "arch/facts_check.h"
#include "arch/names.h"
#include "arch/target.h"

namespace moetune {
namespace {

constexpr std::size_t kNamesShown = 5;

std::string date_text(std::chrono::year_month_day date) {
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

std::vector<std::string> native_features(const Facts& facts, std::string_view compute_capability) {
  std::vector<std::string> names;
  for (const auto& feature : facts.features)
    if (const auto* row = feature.row(compute_capability); row && row->support == Support::native)
      names.push_back(feature.name);
  return names;
}

Target target_of(const Facts& facts, const Arch& arch) {
  Target target;
  target.kind = TargetKind::gpu;
  target.name = arch.targets.front().name;
  target.compute_capability = arch.compute_capability;
  target.features = native_features(facts, arch.compute_capability);
  target.smem_per_block_bytes = arch.smem_per_block_bytes;
  target.smem_per_sm_bytes = arch.smem_per_sm_bytes;
  target.source = "data/archs.toml, " + date_text(facts.archs_date);
  return target;
}

std::string source_of(const Gpu& gpu) {
  std::string text =
      fmt::format("data/gpus.toml, {}: {}; confidence {}", date_text(gpu.date), gpu.source, to_string(gpu.confidence));
  if (!gpu.unverified.empty()) text += fmt::format("; from memory: {}", fmt::join(gpu.unverified, ", "));
  return text;
}

std::optional<std::int64_t> memory_of(const Gpu& gpu) {
  if (gpu.memory_mib) return *gpu.memory_mib << 20;
  if (gpu.memory_gb) return std::llround(*gpu.memory_gb * 1e9);
  return std::nullopt;
}

Target target_of(const Facts& facts, const Gpu& gpu) {
  Target target = target_of(facts, *facts.arch(gpu.compute_capability));
  target.name = gpu.name;
  target.cores = gpu.multiprocessors;
  if (gpu.l2_mib) target.l2_bytes = *gpu.l2_mib << 20;
  target.memory_bytes = memory_of(gpu);
  target.memory_gb_s = gpu.memory_gb_s;
  target.bf16_tflops = gpu.bf16_tflops;
  target.fp8_tflops = gpu.fp8_tflops;
  target.fp4_tflops = gpu.fp4_tflops;
  target.tdp_w = gpu.tdp_w;
  target.boost_mhz = gpu.boost_mhz;
  target.source = source_of(gpu);
  return target;
}

Result<Target> target_of_family(const Facts& facts, const Facts::Family& family) {
  if (family.meant) return target_of(facts, facts.gpus[*family.meant]);
  std::vector<std::string> names;
  for (const std::size_t place : family.gpus) names.push_back(facts.gpus[place].name);
  return fail(fmt::format("'{}' covers {} products", family.name, names.size()),
              {fmt::format("name one of: {}", fmt::join(names, ", "))});
}

std::string target_names(const Arch& arch) {
  std::vector<std::string_view> names;
  for (const auto& target : arch.targets) names.push_back(target.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string_view> capability_names(const Facts& facts) {
  std::vector<std::string_view> names;
  for (const auto& arch : facts.archs) names.push_back(arch.compute_capability);
  return names;
}

Result<Target> target_by_name(const Facts& facts, const TargetName& name) {
  for (const auto& arch : facts.archs)
    for (const auto& target : arch.targets)
      if (target.name == name.target) return target_of(facts, arch);
  if (const Arch* arch = facts.arch(name.compute_capability))
    return fail(fmt::format("compute capability {} has no compile target {}", name.compute_capability, name.target),
                {fmt::format("its targets are {}", target_names(*arch))});
  return fail(fmt::format("compute capability {} is not known", name.compute_capability),
              {fmt::format("known are {}", fmt::join(capability_names(facts), ", "))});
}

// "Hopper" is one capability and answers as that; "Blackwell" is five with little in common.
std::optional<Result<Target>> target_by_generation(const Facts& facts, const std::string& key) {
  std::vector<const Arch*> archs;
  for (const auto& arch : facts.archs)
    if (name_key(arch.generation) == key) archs.push_back(&arch);
  if (archs.empty()) return std::nullopt;
  if (archs.size() == 1) return target_of(facts, *archs.front());
  std::vector<std::string_view> names;
  names.reserve(archs.size());
  for (const auto* arch : archs) names.push_back(arch->targets.front().name);
  return fail(
      fmt::format("{} is {} compute capabilities that run different code", archs.front()->generation, archs.size()),
      {fmt::format("name a product or one of: {}", fmt::join(names, ", "))});
}

tl::unexpected<Error> unknown_gpu(const Facts& facts, std::string_view name) {
  std::vector<std::string> known;
  for (const auto& gpu : facts.gpus) {
    known.push_back(gpu.name);
    known.insert(known.end(), gpu.aliases.begin(), gpu.aliases.end());
    known.insert(known.end(), gpu.family.begin(), gpu.family.end());
  }
  const auto near = nearest_names(name, known, kNamesShown);
  std::vector<std::string> hints;
  if (!near.empty()) hints.push_back(fmt::format("near it: {}", fmt::join(near, ", ")));
  hints.emplace_back("a GPU that is not on file can be given by its compute capability, such as 12.0 or sm_120");
  return fail(fmt::format("no GPU named {} among the {} on file", quoted_name(name), facts.gpus.size()),
              std::move(hints));
}

}  // namespace

Result<Target> find_gpu(std::string_view name) {
  if (!facts()) return tl::unexpected(facts().error());
  const Facts& known = *facts();
  if (name.size() > kMaxNameBytes)
    return fail(fmt::format("a GPU name of {} bytes, {}, exceeds the limit of {}", name.size(), quoted_name(name),
                            kMaxNameBytes));
  const std::string key = name_key(name);
  if (key.empty()) return unknown_gpu(known, name);
  if (const auto product = known.products.find(key); product != known.products.end())
    return target_of(known, known.gpus[product->second]);
  if (const auto family = known.families.find(key); family != known.families.end())
    return target_of_family(known, family->second);
  if (const auto target = parse_target_name(key)) return target_by_name(known, *target);
  if (auto target = target_by_generation(known, key)) return *std::move(target);
  return unknown_gpu(known, name);
}

Result<ArchFeature> arch_feature(std::string_view compute_capability, std::string_view feature) {
  if (!facts()) return tl::unexpected(facts().error());
  const Facts& known = *facts();
  if (!known.arch(compute_capability))
    return fail(fmt::format("compute capability {} is not known", quoted_name(compute_capability)),
                {fmt::format("known are {}", fmt::join(capability_names(known), ", "))});
  const Feature* found = known.feature(feature);
  if (!found) {
    std::vector<std::string> names;
    for (const auto& entry : known.features) names.push_back(entry.name);
    const auto near = nearest_names(feature, names, kNamesShown);
    return fail(fmt::format("no instruction feature named {}", quoted_name(feature)),
                near.empty() ? std::vector<std::string>{"the names are in data/archs.toml"}
                             : std::vector<std::string>{fmt::format("near it: {}", fmt::join(near, ", "))});
  }
  const FeatureRow& row = *found->row(compute_capability);
  return ArchFeature{row.support, row.targets.value_or(""), row.note.value_or(""), row.known};
}

}  // namespace moetune
