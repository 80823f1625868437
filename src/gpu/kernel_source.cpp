#include "gpu/kernel_source.h"

#include <utility>

#include "cuda/gpu_device.h"

namespace moetune {

std::string compile_target(const Target& target) {
  cuda::GpuDevice device;
  device.compute_capability = target.compute_capability.value_or("");
  return device.target();
}

cuda::KernelSource kernel_source(std::string name, std::string text, const Target& target) {
  constexpr std::string_view kFolder = "src/kernels/";
  cuda::KernelSource source;
  source.name = std::move(name);
  source.text = std::move(text);
  source.target = compile_target(target);
  for (const auto& file : kernel_files())
    source.headers.emplace(file.name.substr(kFolder.size()), std::string(file.text));
  source.options.emplace_back("-default-device");  // lambdas are device code too
  // The instructions are of 9.0 and of no other.
  if (source.target == "sm_90a") source.options.emplace_back("-DMOETUNE_WGMMA");
  return source;
}

}  // namespace moetune
