#include <gmock/gmock.h>
#include <hwy/targets.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "arch/cpu_features.h"
#include "arch/cpu_system.h"
#include "arch/target.h"
#include "base/file.h"

namespace moetune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Registers as a Zen 4 server answers them, by the vendor's manual: AVX2, FMA, F16C, AVX-512 with VNNI and BF16.
X86Registers zen4() {
  X86Registers r;
  r.leaf1_ecx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;
  r.leaf7_ebx = 1u << 5 | 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
  r.leaf7_ecx = 1u << 1 | 1u << 11;
  r.leaf7_1_eax = 1u << 5;
  r.xcr0 = 0xe7;
  return r;
}

TEST(DecodeX86, LevelsNeedAllTheyAreMadeOf) {
  EXPECT_EQ(decode_x86(zen4()).simd, "avx512_bf16");
  EXPECT_THAT(decode_x86(zen4()).flags, Contains("avx512_vnni"));
  X86Registers no_bf16 = zen4();
  no_bf16.leaf7_1_eax = 0;
  EXPECT_EQ(decode_x86(no_bf16).simd, "avx512");
  X86Registers no_vl = zen4();
  no_vl.leaf7_ebx &= ~(1u << 31);
  EXPECT_EQ(decode_x86(no_vl).simd, "avx2");
  X86Registers no_fma = zen4();
  no_fma.leaf1_ecx &= ~(1u << 12);
  EXPECT_EQ(decode_x86(no_fma).simd, "scalar");
  EXPECT_EQ(decode_x86({}).simd, "scalar");
  EXPECT_THAT(decode_x86({}).flags, IsEmpty());
}

TEST(DecodeX86, WhatTheSystemDoesNotSaveDoesNotCount) {
  X86Registers r = zen4();
  r.xcr0 = 0x7;  // a system, or a hypervisor, without AVX-512 state
  EXPECT_EQ(decode_x86(r).simd, "avx2");
  EXPECT_THAT(decode_x86(r).flags, ElementsAre("fma", "f16c", "avx2"));
  r.xcr0 = 0x67;  // opmasks and ZMM0 to 15 only
  EXPECT_EQ(decode_x86(r).simd, "avx2");
  r.xcr0 = 0x3;
  EXPECT_EQ(decode_x86(r).simd, "scalar");
  r.xcr0 = 0;
  EXPECT_THAT(decode_x86(r).flags, IsEmpty());
}

// Bits by the Linux header asm/hwcap.h. Neoverse V2 has all of them.
TEST(DecodeArm, ReadsHwcap) {
  const std::uint64_t hwcap = 1u << 1 | 1u << 10 | 1u << 20 | 1u << 22;
  const std::uint64_t hwcap2 = 1u << 1 | 1u << 13 | 1u << 14;
  EXPECT_EQ(decode_arm(hwcap, hwcap2).simd, "neon");
  EXPECT_THAT(decode_arm(hwcap, hwcap2).flags,
              ElementsAre("asimd", "asimdhp", "asimddp", "sve", "sve2", "i8mm", "bf16"));
  EXPECT_EQ(decode_arm(0, 0).simd, "scalar");
}

/// A folder with a copy of /proc and /sys, gone after the test.
class Tree : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "arch_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) { ASSERT_TRUE(write_file(root_ + path, text)); }

  void cache(int cpu, int index, int level, const std::string& type, const std::string& size,
             const std::string& shared) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
    put(folder + "level", std::to_string(level) + "\n");
    put(folder + "type", type + "\n");
    put(folder + "size", size + "\n");
    put(folder + "shared_cpu_list", shared + "\n");
  }

  std::string root_;
};

TEST_F(Tree, UnifiedCgroupTakesTheLeastOfAllLevels) {
  put("/proc/self/cgroup", "0::/kube/pod/box\n");
  put("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  put("/sys/fs/cgroup/kube/pod/box/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/kube/pod/box/memory.max", "8589934592\n");
  put("/sys/fs/cgroup/kube/pod/cpu.max", "150000 100000\n");
  put("/sys/fs/cgroup/kube/cpu.max", "800000 100000\n");
  put("/sys/fs/cgroup/kube/memory.max", "max\n");
  put("/sys/fs/cgroup/memory.max", "17179869184\n");
  EXPECT_EQ(cgroup_processors(root_), 1.5);
  EXPECT_EQ(cgroup_memory_bytes(root_), std::int64_t{8} << 30);
}

TEST_F(Tree, OldCgroupsHaveAMountAController) {
  put("/proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n0::/\n");
  put("/proc/self/mountinfo",
      "31 30 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
      "32 30 0:29 /docker/abc /sys/fs/cgroup/memory ro master:5 - cgroup cgroup rw,memory\n"
      "33 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(cgroup_processors(root_), 4.0);
  EXPECT_EQ(cgroup_memory_bytes(root_), std::int64_t{2} << 30);
}

TEST_F(Tree, NoLimitIsAbsent) {
  put("/proc/self/cgroup", "3:cpu:/\n0::/\n");
  put("/proc/self/mountinfo",
      "31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "33 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_processors(root_), std::nullopt);
  EXPECT_EQ(cgroup_memory_bytes(root_), std::nullopt);
}

TEST_F(Tree, AForeignNamespaceAndABlankInThePath) {
  put("/proc/self/cgroup", "0::/../../other\n");
  put("/proc/self/mountinfo", "30 23 0:26 /a\\040b /cg\\040roup rw - cgroup2 cgroup2 rw\n");
  put("/cg roup/cpu.max", "300000 100000\n");
  EXPECT_EQ(cgroup_processors(root_), 3.0);
  put("/proc/self/cgroup", "0::/a b/inner\n");
  put("/cg roup/inner/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_processors(root_), 2.0);
  put("/proc/self/cgroup", "0::/a bc/inner\n");  // beside the mount's root, not below it
  EXPECT_EQ(cgroup_processors(root_), 3.0);
}

TEST_F(Tree, GarbageIsAbsent) {
  put("/proc/self/cgroup", "::\n:\n\n0:\n0::\n99\n");
  put("/proc/self/mountinfo", " - \n1 2 3 4 5 - cgroup2 c\nx - cgroup2 cgroup2 rw\n1 2 3 / \\999 rw - cgroup2 c rw\n");
  put("/proc/meminfo", "MemTotal: 99999999999999999999 kB\n");
  put("/proc/cpuinfo", std::string(100, ':'));
  EXPECT_EQ(cgroup_processors(root_), std::nullopt);
  EXPECT_EQ(cgroup_memory_bytes(root_), std::nullopt);
  EXPECT_EQ(total_memory_bytes(root_), std::nullopt);
  EXPECT_EQ(processor_name(root_), std::nullopt);
  EXPECT_EQ(cgroup_processors(root_ + "/nowhere"), std::nullopt);
  EXPECT_EQ(total_memory_bytes(root_ + "/nowhere"), std::nullopt);
  for (const auto* text : {"max", "0 100000", "100000 0", "-5 100000", "1 2 3", "", "99999999999999999999 100000"}) {
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    put("/cg/cpu.max", text);
    EXPECT_EQ(cgroup_processors(root_), std::nullopt) << text;
  }
}

TEST_F(Tree, MemoryAndName) {
  put("/proc/meminfo", "MemFree: 1 kB\nMemTotal:       24683584 kB\n");
  EXPECT_EQ(total_memory_bytes(root_), std::int64_t{24683584} * 1024);
  put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9554 64-Core Processor\nflags\t: a b\n");
  EXPECT_EQ(processor_name(root_), "AMD EPYC 9554 64-Core Processor");
  put("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n");
  EXPECT_EQ(processor_name(root_), "Arm implementer 0x41 part 0xd4f");
}

// Two pairs of cores on two dies, each die with an L3 of its own.
TEST_F(Tree, CachesAreCountedOnce) {
  for (int cpu = 0; cpu < 4; ++cpu) {
    const std::string die = cpu < 2 ? "0-1" : "2-3";
    cache(cpu, 0, 1, "Data", "48K", std::to_string(cpu));
    cache(cpu, 1, 1, "Instruction", "32K", std::to_string(cpu));
    cache(cpu, 2, 2, "Unified", "2M", std::to_string(cpu));
    cache(cpu, 3, 3, "Unified", "32768K", die);
  }
  const auto all = cache_sizes(root_, std::vector<int>{0, 1, 2, 3});
  EXPECT_EQ(all.l1_bytes, 48 << 10);
  EXPECT_EQ(all.l2_bytes, 2 << 20);
  EXPECT_EQ(all.l3_bytes, 64 << 20);
  EXPECT_EQ(cache_sizes(root_, std::vector<int>{1}).l3_bytes, 32 << 20);
  const auto none = cache_sizes(root_, std::vector<int>{7});
  EXPECT_FALSE(none.l1_bytes || none.l2_bytes || none.l3_bytes);
  EXPECT_FALSE(cache_sizes(root_, {}).l1_bytes);
}

TEST_F(Tree, ACacheSizeThatIsNoneIsAbsent) {
  for (const auto* size : {"", "K", "-32K", "0K", "32Q", "99999999999999K", "32 K"}) {
    cache(0, 0, 1, "Data", size, "0");
    EXPECT_FALSE(cache_sizes(root_, std::vector<int>{0}).l1_bytes) << size;
  }
}

/// The flags that Linux shows; it leaves out what the system does not save.
std::set<std::string> linux_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(ProbeCpu, AgreesWithLinux) {
  const Target target = probe_cpu();
  EXPECT_EQ(target.kind, TargetKind::cpu);
  EXPECT_FALSE(target.name.empty());
  EXPECT_EQ(target.source, "probed");
  EXPECT_FALSE(target.compute_capability.has_value());
  const auto shown = linux_flags();
  std::set<std::string> expected;
  for (const auto* flag :
       {"fma",      "f16c",     "avx2",       "avx_vnni",    "avx512f",     "avx512dq",    "avx512cd",
        "avx512bw", "avx512vl", "avx512vbmi", "avx512_vnni", "avx512_bf16", "avx512_fp16", "asimd",
        "asimdhp",  "asimddp",  "sve",        "sve2",        "i8mm",        "bf16"})
    if (shown.contains(flag)) expected.insert(flag);
  EXPECT_EQ(std::set<std::string>(target.features.begin(), target.features.end()), expected);
  EXPECT_LE(target.memory_bytes.value(), ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE));
  EXPECT_GE(target.memory_bytes.value(), 1 << 26);
}

#if HWY_ARCH_X86
TEST(ProbeCpu, AgreesWithHighway) {
  const auto targets = hwy::SupportedTargets();
  const std::string simd = probe_cpu().simd.value();
  EXPECT_EQ((targets & HWY_AVX2) != 0, simd != "scalar");
  EXPECT_EQ((targets & HWY_AVX3) != 0, simd.starts_with("avx512"));
}
#endif

TEST(ProbeCpu, CountsTheProcessorsItMayUse) {
  const auto allowed = allowed_processors();
  ASSERT_FALSE(allowed.empty());
  EXPECT_LE(probe_cpu().cores.value(), static_cast<std::int64_t>(allowed.size()));
  EXPECT_GE(probe_cpu().cores.value(), 1);
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(allowed.back()), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_THAT(allowed_processors(), ElementsAre(allowed.back()));
    EXPECT_EQ(probe_cpu().cores, 1);
  }).join();
}

}  // namespace
}  // namespace moetune
