// The GPUs that the driver shows, with the limits that kernels are held against.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cuda/driver.h"

namespace moetune::cuda {

struct GpuDevice {
  int index = 0;                   ///< as CUDA counts the devices that CUDA_VISIBLE_DEVICES leaves
  std::string uuid;                ///< "GPU-5dbf17f2-…", as nvidia-smi -L writes it
  std::string name;                ///< "NVIDIA H200"
  std::string pci;                 ///< bus id, "0000:18:00.0"
  std::string compute_capability;  ///< "9.0"
  std::int64_t multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t shared_per_block_bytes = 0;  ///< the most that a launch may ask for, opt-in included
  std::int64_t shared_per_sm_bytes = 0;
  std::int64_t reserved_shared_per_block_bytes = 0;  ///< taken by the system of each block
  std::int64_t registers_per_sm = 0;
  std::int64_t threads_per_sm = 0;
  std::int64_t blocks_per_sm = 0;
  std::int64_t clock_khz = 0;         ///< highest of the multiprocessors; 0 where the driver does not say
  std::int64_t memory_clock_khz = 0;  ///< the same of the memory
  std::int64_t memory_bus_bits = 0;
  bool clusters = false;  ///< launches with clusters of blocks

  bool operator==(const GpuDevice&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("index", self.index);
    visit("uuid", self.uuid);
    visit("name", self.name);
    visit("pci", self.pci);
    visit("compute_capability", self.compute_capability);
    visit("multiprocessors", self.multiprocessors);
    visit("memory_bytes", self.memory_bytes);
    visit("l2_bytes", self.l2_bytes);
    visit("shared_per_block_bytes", self.shared_per_block_bytes);
    visit("shared_per_sm_bytes", self.shared_per_sm_bytes);
    visit("reserved_shared_per_block_bytes", self.reserved_shared_per_block_bytes);
    visit("registers_per_sm", self.registers_per_sm);
    visit("threads_per_sm", self.threads_per_sm);
    visit("blocks_per_sm", self.blocks_per_sm);
    visit("clock_khz", self.clock_khz);
    visit("memory_clock_khz", self.memory_clock_khz);
    visit("memory_bus_bits", self.memory_bus_bits);
    visit("clusters", self.clusters);
  }

  /// The target that has all features of this chip: "sm_90a" for 9.0, "sm_80" for 8.0, which has none of its own.
  [[nodiscard]] std::string target() const;
};

/// All of them, without making a context on any.
[[nodiscard]] Result<std::vector<GpuDevice>> list_gpus(const Driver& driver);

}  // namespace moetune::cuda
