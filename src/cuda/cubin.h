// What a cubin says of its kernels, read from the machine code's own file (ELF) without CUDA's tools.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace moetune::cuda {

/// What one kernel takes of the chip.
struct KernelResources {
  std::string name;            ///< in the cubin, mangled unless extern "C"
  std::int64_t registers = 0;  ///< of a thread
  std::int64_t static_shared_bytes =
      0;  ///< of a block, as the source declares it: without what the system reserves on 9.0 and up
  std::int64_t stack_bytes = 0;  ///< local memory of a thread, its calls and spilled registers included
  std::int64_t parameter_bytes = 0;
  std::optional<std::int64_t> max_threads;  ///< of a block, where the source bounds it (__launch_bounds__)
  /// Registers that did not fit, as bytes written and read back by a thread; only the assembler's report tells
  /// (read_spills).
  std::optional<std::int64_t> spill_store_bytes, spill_load_bytes;

  bool operator==(const KernelResources&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("name", self.name);
    visit("registers", self.registers);
    visit("static_shared_bytes", self.static_shared_bytes);
    visit("stack_bytes", self.stack_bytes);
    visit("parameter_bytes", self.parameter_bytes);
    visit("max_threads", self.max_threads);
    visit("spill_store_bytes", self.spill_store_bytes);
    visit("spill_load_bytes", self.spill_load_bytes);
  }
};

/// Every kernel of the cubin in the order of its symbols. Any input is safe: one that is cut short or contradicts
/// itself is an Error.
///
/// Layout: a kernel is a function symbol with the entry bit (0x10) in st_other, its code in `.text.NAME`. Its static
/// shared memory is the size of `.nv.shared.NAME`, which from 9.0 on begins with 1024 reserved bytes; a cubin that has
/// those has a section
/// `.nv.shared.reserved.0`. The section `.nv.info` lists attributes of 4 bytes (format, id, 16-bit value or length) and
/// a payload: registers (0x2f), frame (0x11) and whole stack (0x12) as pairs of symbol index and number;
/// `.nv.info.NAME` has the bounds on threads (0x05: x, y, z) and the bytes of parameters (0x19). As CUDA 12.8 and 13.0
/// write them, compared with cuobjdump --dump-resource-usage.
[[nodiscard]] Result<std::vector<KernelResources>> read_cubin(std::string_view cubin);

/// Takes the bytes of spilled registers from what the assembler reports with -v.
void read_spills(std::string_view log, std::vector<KernelResources>& kernels);

}  // namespace moetune::cuda
