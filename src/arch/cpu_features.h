// What instructions this processor has and the system lets a process use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moetune {

struct CpuFeatures {
  std::string simd = "scalar";     ///< the best level: "avx2", "avx512", "avx512_bf16", "neon", "scalar"
  std::vector<std::string> flags;  ///< those that matter to backends, named as Linux names them in /proc/cpuinfo
};

/// The CPUID registers that the decision needs, as the processor answers them.
struct X86Registers {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0, leaf7_ecx = 0, leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;  ///< the register state that the system saves on a task switch (XGETBV)
};

/// "avx2" needs AVX2, FMA and F16C; "avx512" also F, BW, CD, DQ and VL; "avx512_bf16" also BF16. A flag counts only if
/// the system saves the registers that it works on. Bits by the Intel SDM, volume 2, CPUID, and volume 1, 13.3.
[[nodiscard]] CpuFeatures decode_x86(const X86Registers& registers);

/// The same from Linux's AT_HWCAP and AT_HWCAP2 of a 64-bit Arm process (Documentation/arm64/elf_hwcaps).
[[nodiscard]] CpuFeatures decode_arm(std::uint64_t hwcap, std::uint64_t hwcap2);

/// This processor. "scalar" where it is neither x86-64 nor 64-bit Arm.
[[nodiscard]] CpuFeatures cpu_features();

}  // namespace moetune
