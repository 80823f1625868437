#include "gpu/gpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "gpu/gpu_session.h"
#include "gpu/revision.h"

namespace moetune {
namespace {

constexpr std::string_view kSource = "src/gpu/gpu_backend.cpp";
/// Of a block on 8.6, 8.9 and 12.x, where it is least (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
constexpr std::int64_t kLeastShared = std::int64_t{99} << 10;
/// align_pairs keeps a counter for each expert in shared memory that needs no opt-in.
constexpr std::int64_t kMaxExperts = (48 << 10) / 4 - 33;
constexpr std::int64_t kMaxTopK = 1 << 10;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;  ///< kernels count columns in 32 bits

}  // namespace

int capability_number(const Target& target) {
  const std::string text = target.compute_capability.value_or("");
  const auto dot = text.find('.');
  int major = 0, minor = 0;
  if (dot == std::string::npos) return 0;
  std::from_chars(text.data(), text.data() + dot, major);
  std::from_chars(text.data() + dot + 1, text.data() + text.size(), minor);
  return 10 * major + minor;
}

namespace {

class Checker {
 public:
  void refuse(ReasonCode code, std::string have, std::string need, std::string hint = {}) {
    reasons.push_back({code, std::move(have), std::move(need), std::move(hint), std::string(kSource)});
  }

  void target(const Target& target) {
    if (target.kind != TargetKind::gpu)
      return refuse(ReasonCode::arch, target.name, "an NVIDIA GPU",
                    "use --device gpu, or --gpu NAME to ask for another machine");
    if (capability_number(target) < 80)
      refuse(ReasonCode::arch, fmt::format("compute capability {}", target.compute_capability.value_or("unknown")),
             "8.0 or newer (mma.sync for bf16, cp.async)");
  }

  void layer(const Problem& problem) {
    for (const auto& reason : why_not_packed(problem.weights)) reasons.push_back(reason);
    if (problem.activation.kind == ActivationKind::situ)
      refuse(ReasonCode::activation_function, "situ", "silu, gelu, gelu_tanh, relu2, silu_clamped or swiglu_oai");
    if (problem.experts < 1 || problem.experts > kMaxExperts)
      refuse(ReasonCode::shape, fmt::format("{} experts", problem.experts),
             fmt::format("1 to {} experts", kMaxExperts));
    if (problem.top_k < 1 || problem.top_k > kMaxTopK)
      refuse(ReasonCode::routing, fmt::format("top-{}", problem.top_k), fmt::format("top-1 to {}", kMaxTopK));
    if (problem.hidden < 8 || problem.hidden % 8 != 0 || problem.hidden > kMaxWidth)
      refuse(ReasonCode::shape, fmt::format("hidden {}", problem.hidden),
             "a multiple of 8: tokens are read 16 bytes at a time");
    if (problem.intermediate < 1 || problem.intermediate > kMaxWidth)
      refuse(ReasonCode::shape, fmt::format("intermediate {}", problem.intermediate),
             fmt::format("1 to {}", kMaxWidth));
  }

  Reasons reasons;
};

/// A kernel held against the limits of the chip it was compiled for.
void check_resources(const ProjectionKernel& kernel, const cuda::CompiledKernel& compiled, const Target& target,
                     Checker& checker) {
  const auto* resources = compiled.resources(kernel.entry);
  if (resources == nullptr)
    return checker.refuse(ReasonCode::toolchain, "no " + kernel.entry + " in the compiled kernel", "one");
  const std::int64_t shared = resources->static_shared_bytes + kernel.shared_bytes;
  if (shared > shared_limit(target))
    checker.refuse(ReasonCode::shared_memory, fmt::format("{} bytes a block", shared_limit(target)),
                   fmt::format("{} bytes for {}", shared, kernel.source.name));
  if (resources->registers * kernel.threads > kRegistersOfSm)
    checker.refuse(ReasonCode::shape, fmt::format("{} registers a multiprocessor", kRegistersOfSm),
                   fmt::format("{} x {} threads for {}", resources->registers, kernel.threads, kernel.source.name));
}

}  // namespace

std::int64_t shared_limit(const Target& target) { return target.smem_per_block_bytes.value_or(kLeastShared); }

/// Another compiler makes other machine code, and another driver launches it.
std::string GpuBackend::revision() const {
  std::string all(kGpuRevision);
  if (runtime_->compiler()) all += " " + (*runtime_->compiler())->identity();
  if (runtime_->driver()) all += " " + (*runtime_->driver())->version_text();
  return content_hash(all);
}

Reasons GpuBackend::why_not(const Problem& problem, const Target& target) const {
  Checker checker;
  checker.target(target);
  checker.layer(problem);
  if (checker.reasons.empty())
    if (auto reason = memory_reason(problem, target, kSource)) checker.reasons.push_back(*std::move(reason));
  // What another machine has installed is not known here.
  if (checker.reasons.empty() && target.source == "probed") {
    if (!runtime_->compiler())
      checker.reasons.push_back(runtime_->compiler().error());
    else
      for (auto& reason : (*runtime_->compiler())->why_not(compile_target(target)))
        checker.reasons.push_back(std::move(reason));
  }
  return checker.reasons;
}

std::optional<Reasons> GpuBackend::compile(const Problem& problem, const Target& target) const {
  if (!runtime_->compiler()) return std::nullopt;
  Checker checker;
  std::vector<std::pair<ProjectionKernel, cuda::ModuleCache::Future>> jobs;
  for (const std::int64_t tokens : {1, 64, 4096}) {
    const LayerPlan plan = this->plan(problem, target, default_config(problem, target, tokens));
    for (const auto& kernel : {plan.up, plan.down})
      jobs.emplace_back(kernel, runtime_->kernels().submit(kernel.source));
  }
  const auto common = runtime_->kernels().submit(shared_kernels(target));
  if (!common.get()) checker.reasons.push_back(common.get().error());
  for (const auto& [kernel, future] : jobs) {
    const auto& compiled = future.get();
    if (compiled)
      check_resources(kernel, **compiled, target, checker);
    else if (std::find(checker.reasons.begin(), checker.reasons.end(), compiled.error()) == checker.reasons.end())
      checker.reasons.push_back(compiled.error());
  }
  return checker.reasons;
}

Result<std::unique_ptr<Session>> GpuBackend::open(const Problem& problem, const Layer& layer,
                                                  const Target& target) const {
  return open_gpu_session(*this, runtime_, problem, layer, target);
}

cuda::KernelSource shared_kernels(const Target& target) {
  return kernel_source("moe_shared.cu",
                       fmt::format(R"(#include "common/align.cuh"
#include "common/combine.cuh"
#include "ptx/grid.cuh"
using namespace moetune;
extern "C" __global__ void __launch_bounds__({0}) moe_align(const __grid_constant__ MoeCall call) {{
  ptx::launch_dependents();
  ptx::wait_for_previous();
  align_pairs<{0}>(call);
}}
extern "C" __global__ void __launch_bounds__({1}) moe_combine(const __grid_constant__ MoeCall call) {{
  ptx::launch_dependents();
  ptx::wait_for_previous();
  combine_pairs(call);
}}
)",
                                   kAlignThreads, kCombineThreads),
                       target);
}

ProjectionKernel projection_kernel(const ProjectionForm& form, bool up, const Problem& problem, const Target& target) {
  ProjectionKernel kernel;
  kernel.entry = up ? "moe_up" : "moe_down";
  kernel.threads = form.threads;
  kernel.shared_bytes = form.shared_bytes;
  const std::string call = up ? "_up<Config>(call, weights, alpha, limit)" : "_down<Config>(call, weights)";
  kernel.source =
      kernel_source(kernel.entry + ".cu",
                    fmt::format(R"(#include "sm80/sm80_{0}.cuh"
#include "ptx/grid.cuh"
using namespace moetune;
struct Config {{
  static constexpr Format kFormat = Format::{1};
  static constexpr ActivationFunction kActivation = ActivationFunction::{2};
  static constexpr bool kGated = {3}, kWeightOnInput = {4};
  static constexpr int {5};
}};
using Shape = sm80::{6}<Config>;
static_assert(Shape::kThreads == {7} && Shape::kSharedBytes == {8}, "the host counts otherwise");
extern "C" __global__ void __launch_bounds__({7}, {9}) {10}(
    const __grid_constant__ MoeCall call, const __grid_constant__ MoeWeights weights, float alpha, float limit) {{
  ptx::launch_dependents();
  ptx::wait_for_previous();
  sm80::{0}{11};
}}
)",
                                form.name, packed_format(problem.weights), to_string(problem.activation.kind),
                                problem.gated, problem.router.weight_on_input, form.config, form.shape, form.threads,
                                form.shared_bytes, form.blocks_per_sm, kernel.entry, call),
                    target);
  return kernel;
}

std::int64_t registers_of_thread(std::int64_t threads, std::int64_t blocks) {
  constexpr std::int64_t kMost = 255, kGranule = 8;
  return std::min(kMost, kRegistersOfSm / (threads * blocks) / kGranule * kGranule);
}

}  // namespace moetune
