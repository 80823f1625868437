#include "arch/cpu_features.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace moetune {
namespace {

constexpr std::uint64_t kAvxState = 0x06;     // XMM and upper halves of YMM
constexpr std::uint64_t kAvx512State = 0xe6;  // those, opmasks, upper halves of ZMM, ZMM16 to 31
constexpr std::uint32_t kOsxsaveBit = 27;     // leaf 1, ECX: XGETBV works

struct X86Flag {
  std::string_view name;
  std::uint32_t X86Registers::*word;
  std::uint32_t bit;
  std::uint64_t state;
};

constexpr std::array kX86Flags = {
    X86Flag{"fma", &X86Registers::leaf1_ecx, 12, kAvxState},
    X86Flag{"f16c", &X86Registers::leaf1_ecx, 29, kAvxState},
    X86Flag{"avx2", &X86Registers::leaf7_ebx, 5, kAvxState},
    X86Flag{"avx_vnni", &X86Registers::leaf7_1_eax, 4, kAvxState},
    X86Flag{"avx512f", &X86Registers::leaf7_ebx, 16, kAvx512State},
    X86Flag{"avx512dq", &X86Registers::leaf7_ebx, 17, kAvx512State},
    X86Flag{"avx512cd", &X86Registers::leaf7_ebx, 28, kAvx512State},
    X86Flag{"avx512bw", &X86Registers::leaf7_ebx, 30, kAvx512State},
    X86Flag{"avx512vl", &X86Registers::leaf7_ebx, 31, kAvx512State},
    X86Flag{"avx512vbmi", &X86Registers::leaf7_ecx, 1, kAvx512State},
    X86Flag{"avx512_vnni", &X86Registers::leaf7_ecx, 11, kAvx512State},
    X86Flag{"avx512_bf16", &X86Registers::leaf7_1_eax, 5, kAvx512State},
    X86Flag{"avx512_fp16", &X86Registers::leaf7_edx, 23, kAvx512State},
};

struct ArmFlag {
  std::string_view name;
  bool second;  // in AT_HWCAP2
  std::uint32_t bit;
};

constexpr std::array kArmFlags = {
    ArmFlag{"asimd", false, 1}, ArmFlag{"asimdhp", false, 10}, ArmFlag{"asimddp", false, 20}, ArmFlag{"sve", false, 22},
    ArmFlag{"sve2", true, 1},   ArmFlag{"i8mm", true, 13},     ArmFlag{"bf16", true, 14},
};

bool has_all(const std::vector<std::string>& flags, std::initializer_list<std::string_view> names) {
  return std::all_of(names.begin(), names.end(),
                     [&](std::string_view name) { return std::find(flags.begin(), flags.end(), name) != flags.end(); });
}

#if defined(__x86_64__)
std::uint64_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

X86Registers read_x86() {
  X86Registers r;
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) r.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    const std::uint32_t subleaves = eax;
    r.leaf7_ebx = ebx;
    r.leaf7_ecx = ecx;
    r.leaf7_edx = edx;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) r.leaf7_1_eax = eax;
  }
  if ((r.leaf1_ecx >> kOsxsaveBit & 1) != 0) r.xcr0 = read_xcr0();
  return r;
}
#endif

}  // namespace

CpuFeatures decode_x86(const X86Registers& registers) {
  CpuFeatures features;
  for (const auto& flag : kX86Flags)
    if ((registers.*flag.word >> flag.bit & 1) != 0 && (registers.xcr0 & flag.state) == flag.state)
      features.flags.emplace_back(flag.name);
  if (!has_all(features.flags, {"avx2", "fma", "f16c"})) return features;
  features.simd = "avx2";
  if (!has_all(features.flags, {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})) return features;
  features.simd = has_all(features.flags, {"avx512_bf16"}) ? "avx512_bf16" : "avx512";
  return features;
}

CpuFeatures decode_arm(std::uint64_t hwcap, std::uint64_t hwcap2) {
  CpuFeatures features;
  for (const auto& flag : kArmFlags)
    if (((flag.second ? hwcap2 : hwcap) >> flag.bit & 1) != 0) features.flags.emplace_back(flag.name);
  if (has_all(features.flags, {"asimd"})) features.simd = "neon";
  return features;
}

CpuFeatures cpu_features() {
#if defined(__x86_64__)
  return decode_x86(read_x86());
#elif defined(__aarch64__)
  return decode_arm(getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
#else
  return {};
#endif
}

}  // namespace moetune
