#include "cuda/module.h"

#include <fmt/format.h>

#include <limits>

namespace moetune::cuda {
namespace {

/// The driver's form of a launch; holds the attributes that it points to.
class RawLaunch {
 public:
  RawLaunch(const Launch& launch, cu::Stream stream) {
    config_.grid = launch.grid;
    config_.block = launch.block;
    config_.shared_bytes = launch.dynamic_shared_bytes;
    config_.stream = stream;
    if (launch.cluster != std::array<std::uint32_t, 3>{1, 1, 1}) {
      cu::LaunchAttribute& attribute = add(cu::LaunchAttribute::kClusterDimension);
      attribute.value.cluster = launch.cluster;
    }
    if (launch.overlaps_previous) add(cu::LaunchAttribute::kProgrammaticStreamSerialization).value.flag = 1;
    if (launch.cooperative) add(cu::LaunchAttribute::kCooperative).value.flag = 1;
    config_.attributes = attributes_.data();
  }
  RawLaunch(const RawLaunch&) = delete;
  RawLaunch& operator=(const RawLaunch&) = delete;
  ~RawLaunch() = default;
  [[nodiscard]] const cu::LaunchConfig* get() const { return &config_; }

 private:
  cu::LaunchAttribute& add(cu::LaunchAttribute::Id id) {
    cu::LaunchAttribute& attribute = attributes_[config_.attribute_count++];
    attribute.id = id;
    return attribute;
  }
  std::array<cu::LaunchAttribute, 3> attributes_{};
  cu::LaunchConfig config_;
};

std::string describe(std::string_view call, const std::string& name, const Launch& launch) {
  std::string text =
      fmt::format("{}({}, grid {}, block {}, {} bytes of dynamic shared memory", call, name,
                  fmt::join(launch.grid, "x"), fmt::join(launch.block, "x"), launch.dynamic_shared_bytes);
  if (launch.cluster != std::array<std::uint32_t, 3>{1, 1, 1})
    text += fmt::format(", cluster {}", fmt::join(launch.cluster, "x"));
  return text + ")";
}

}  // namespace

Result<FunctionInfo> Function::info() const {
  FunctionInfo info;
  using Attribute = cu::FunctionAttribute;
  const std::array<std::pair<Attribute, std::int64_t*>, 5> wanted = {
      {{Attribute::registers, &info.registers},
       {Attribute::static_shared_bytes, &info.static_shared_bytes},
       {Attribute::local_bytes, &info.local_bytes},
       {Attribute::constant_bytes, &info.constant_bytes},
       {Attribute::max_threads_per_block, &info.max_threads_per_block}}};
  for (const auto& [attribute, target] : wanted) {
    int value = 0;
    const int id = static_cast<int>(attribute);
    MOETUNE_CHECK(context().check(context().api().function_get_attribute(&value, id, raw_),
                                  fmt::format("cuFuncGetAttribute({}, {})", name_, id)));
    *target = value;
  }
  return info;
}

Status Function::allow_dynamic_shared(std::int64_t bytes) const {
  if (bytes < 0 || bytes > std::numeric_limits<int>::max())
    return fail(fmt::format("{} bytes of dynamic shared memory for {} are no size", bytes, name_));
  const auto code = context().api().function_set_attribute(
      raw_, static_cast<int>(cu::FunctionAttribute::max_dynamic_shared_bytes), static_cast<int>(bytes));
  if (code == cu::kSuccess) return {};
  std::string call = fmt::format("cuFuncSetAttribute({}, {} bytes of dynamic shared memory", name_, bytes);
  const auto limit = context().attribute(cu::DeviceAttribute::max_shared_per_block_optin);
  const auto own = info();
  if (limit && own)
    call += fmt::format(" and {} of its own, the device allows {} a block", own->static_shared_bytes, *limit);
  return context().check(code, call + ")");
}

Status Function::allow_large_clusters() const {
  return context().check(context().api().function_set_attribute(
                             raw_, static_cast<int>(cu::FunctionAttribute::non_portable_cluster_allowed), 1),
                         fmt::format("cuFuncSetAttribute({}, non-portable clusters)", name_));
}

Result<int> Function::blocks_per_sm(int threads, std::int64_t dynamic_shared_bytes) const {
  int blocks = 0;
  MOETUNE_CHECK(context().check(
      context().api().occupancy_blocks(&blocks, raw_, threads, static_cast<std::size_t>(dynamic_shared_bytes)),
      fmt::format("cuOccupancyMaxActiveBlocksPerMultiprocessor({}, {} threads, {} bytes)", name_, threads,
                  dynamic_shared_bytes)));
  return blocks;
}

Result<int> Function::clusters_on_device(const Launch& launch) const {
  int clusters = 0;
  const RawLaunch raw(launch, nullptr);
  MOETUNE_CHECK(context().check(context().api().occupancy_clusters(&clusters, raw_, raw.get()),
                                describe("cuOccupancyMaxActiveClusters", name_, launch)));
  return clusters;
}

Status Function::launch(const Stream& stream, const Launch& launch, std::span<void* const> arguments) const {
  const RawLaunch raw(launch, stream.raw());
  const auto code = context().api().launch_kernel(raw.get(), raw_, const_cast<void**>(arguments.data()), nullptr);
  if (code == cu::kSuccess) return {};  // the words are only made where they are needed: this is on the timed path
  return context().check(code, describe("cuLaunchKernelEx", name_, launch));
}

Result<Module> Module::load(const ContextRef& context, std::string_view cubin) {
  // The driver finds the end of an image in its header, so too short a one would be read past its end.
  constexpr std::size_t kElfHeaderBytes = 64;
  if (cubin.size() < kElfHeaderBytes || !cubin.starts_with("\x7f"
                                                           "ELF"))
    return fail(fmt::format("{} bytes that are not a cubin", cubin.size()));
  cu::Module raw = nullptr;
  MOETUNE_CHECK(context->check(context->api().module_load_data(&raw, cubin.data()),
                               fmt::format("cuModuleLoadData({} bytes)", cubin.size())));
  return Module(std::make_shared<const Function::Loaded>(context, raw));
}

Result<Function> Module::function(const std::string& name) const {
  const auto& context = *loaded_->context();
  cu::Function raw = nullptr;
  MOETUNE_CHECK(context.check(context.api().module_get_function(&raw, loaded_->get(), name.c_str()),
                              fmt::format("cuModuleGetFunction({})", name)));
  return Function(loaded_, raw, name);
}

Result<Module::Global> Module::global(const std::string& name) const {
  const auto& context = *loaded_->context();
  Global global;
  MOETUNE_CHECK(
      context.check(context.api().module_get_global(&global.pointer, &global.bytes, loaded_->get(), name.c_str()),
                    fmt::format("cuModuleGetGlobal({})", name)));
  return global;
}

}  // namespace moetune::cuda
