// Compiled kernels on the device: load, look at, launch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "cuda/memory.h"

namespace moetune::cuda {

/// Grid and block in blocks and threads, as CUDA counts them.
struct Launch {
  std::array<std::uint32_t, 3> grid = {1, 1, 1};
  std::array<std::uint32_t, 3> block = {1, 1, 1};
  std::uint32_t dynamic_shared_bytes = 0;
  std::array<std::uint32_t, 3> cluster = {
      1, 1, 1};  ///< blocks of a cluster; needs compute capability 9.0 where it is more than one
  /// May begin before the kernel ahead of it in the stream has ended; the kernel itself waits
  /// (griddepcontrol.wait). 9.0 and up.
  bool overlaps_previous = false;
  bool cooperative = false;  ///< all blocks resident at once
};

/// What the driver says of a loaded kernel.
struct FunctionInfo {
  std::int64_t registers = 0;  ///< of a thread
  std::int64_t static_shared_bytes = 0;
  std::int64_t local_bytes = 0;  ///< of a thread: stack and spilled registers
  std::int64_t constant_bytes = 0;
  std::int64_t max_threads_per_block = 0;
};

/// A kernel of a module; keeps the module loaded. Copies are the same kernel.
class Function {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Result<FunctionInfo> info() const;
  /// Lets launches use that much dynamic shared memory; needed once where it is more than 48 KB.
  [[nodiscard]] Status allow_dynamic_shared(std::int64_t bytes) const;
  /// Lets launches use clusters of more than 8 blocks.
  [[nodiscard]] Status allow_large_clusters() const;
  /// Blocks of that shape that fit on one multiprocessor at once.
  [[nodiscard]] Result<int> blocks_per_sm(int threads, std::int64_t dynamic_shared_bytes) const;
  /// Clusters of that launch that fit on the device at once.
  [[nodiscard]] Result<int> clusters_on_device(const Launch& launch) const;

  /// `arguments[i]` points to the i-th parameter's value. Returns once the launch is queued; what fails on the device
  /// surfaces at a later synchronisation.
  [[nodiscard]] Status launch(const Stream& stream, const Launch& launch, std::span<void* const> arguments) const;
  /// Arguments by value, in the types of the kernel's parameters.
  template <class... Args>
  [[nodiscard]] Status operator()(const Stream& stream, const Launch& how, const Args&... args) const {
    static_assert((std::is_trivially_copyable_v<Args> && ...), "a kernel's parameters are copied byte by byte");
    const std::array<void*, sizeof...(Args)> pointers = {const_cast<void*>(static_cast<const void*>(&args))...};
    return launch(stream, how, pointers);
  }

 private:
  friend class Module;
  using Loaded = Owned<cu::Module, &DriverApi::module_unload>;
  Function(std::shared_ptr<const Loaded> module, cu::Function raw, std::string name)
      : module_(std::move(module)), raw_(raw), name_(std::move(name)) {}
  [[nodiscard]] const Context& context() const { return *module_->context(); }

  std::shared_ptr<const Loaded> module_;
  cu::Function raw_ = nullptr;
  std::string name_;
};

/// A loaded cubin. Move-only.
class Module {
 public:
  [[nodiscard]] static Result<Module> load(const ContextRef& context, std::string_view cubin);
  Module(Module&&) noexcept = default;
  Module& operator=(Module&&) noexcept = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module() = default;

  /// By its name in the cubin (CompiledKernel::lowered).
  [[nodiscard]] Result<Function> function(const std::string& name) const;
  struct Global {
    cu::DevicePointer pointer = 0;
    std::size_t bytes = 0;
  };
  /// A __device__ or __constant__ variable.
  [[nodiscard]] Result<Global> global(const std::string& name) const;

 private:
  explicit Module(std::shared_ptr<const Function::Loaded> loaded) : loaded_(std::move(loaded)) {}
  std::shared_ptr<const Function::Loaded> loaded_;
};

}  // namespace moetune::cuda
