#include <gmock/gmock.h>

#include "arch/facts.h"
#include "arch/target.h"

namespace moetune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Lookup {
  std::string typed;
  std::string name;
};

void PrintTo(const Lookup& lookup, std::ostream* out) { *out << lookup.typed; }

class Found : public ::testing::TestWithParam<Lookup> {};

TEST_P(Found, Names) {
  const auto target = find_gpu(GetParam().typed);
  ASSERT_TRUE(target) << target.error().what;
  EXPECT_EQ(target->name, GetParam().name);
  EXPECT_EQ(target->kind, TargetKind::gpu);
  EXPECT_TRUE(target->compute_capability.has_value());
  EXPECT_FALSE(target->features.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Gpus, Found,
    ::testing::Values(
        Lookup{"NVIDIA H200", "NVIDIA H200"}, Lookup{"H200", "NVIDIA H200"}, Lookup{"h200_nvl", "NVIDIA H200 NVL"},
        Lookup{"NVIDIA_H200_NVL", "NVIDIA H200 NVL"}, Lookup{"B200", "NVIDIA B200"},
        Lookup{"b300", "NVIDIA B300 SXM6 AC"}, Lookup{"GB200", "NVIDIA GB200"}, Lookup{"GB10", "NVIDIA GB10"},
        Lookup{"dgx spark", "NVIDIA GB10"}, Lookup{"DGX-Spark", "NVIDIA GB10"}, Lookup{"Thor", "NVIDIA Thor"},
        Lookup{"jetson agx thor", "NVIDIA Thor"}, Lookup{"5090", "NVIDIA GeForce RTX 5090"},
        Lookup{"RTX5090", "NVIDIA GeForce RTX 5090"}, Lookup{"GeForce RTX 5090", "NVIDIA GeForce RTX 5090"},
        Lookup{"rtx 5090 d v2", "NVIDIA GeForce RTX 5090 D v2"}, Lookup{"4090", "NVIDIA GeForce RTX 4090"},
        Lookup{"l40s", "NVIDIA L40S"}, Lookup{"L40", "NVIDIA L40"}, Lookup{"A6000", "NVIDIA RTX A6000"},
        Lookup{"RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"}, Lookup{"T4", "Tesla T4"},
        Lookup{"V100-SXM2-32GB", "Tesla V100-SXM2-32GB"}, Lookup{"GH200", "NVIDIA GH200 480GB"},
        Lookup{"H20-3e", "NVIDIA H20-3e"}, Lookup{"H20", "NVIDIA H20"},
        Lookup{"A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB"}, Lookup{"orin", "Orin (nvgpu)"}));

INSTANTIATE_TEST_SUITE_P(
    FamiliesWithAMeaning, Found,
    ::testing::Values(Lookup{"RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"},
                      Lookup{"RTX PRO 6000 Server", "NVIDIA RTX PRO 6000 Blackwell Server Edition"},
                      Lookup{"rtx_pro_6000_max-q", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"},
                      Lookup{"H100", "NVIDIA H100 80GB HBM3"}, Lookup{"A100", "NVIDIA A100-SXM4-80GB"},
                      Lookup{"RTX PRO 4000", "NVIDIA RTX PRO 4000 Blackwell"}));

INSTANTIATE_TEST_SUITE_P(Targets, Found,
                         ::testing::Values(Lookup{"sm_120a", "sm_120"}, Lookup{"sm_120", "sm_120"},
                                           Lookup{"SM120", "sm_120"}, Lookup{"120a", "sm_120"},
                                           Lookup{"120f", "sm_120"}, Lookup{"12.0", "sm_120"},
                                           Lookup{"12.0a", "sm_120"}, Lookup{"compute_90", "sm_90"},
                                           Lookup{"90a", "sm_90"}, Lookup{"8.6", "sm_86"}, Lookup{"7.0", "sm_70"},
                                           Lookup{"103f", "sm_103"}, Lookup{"sm_101a", "sm_110"},
                                           Lookup{"Hopper", "sm_90"}));

struct Refusal {
  std::string typed;
  std::string what;
  std::string hint;  ///< part of one of them
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.what; }

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, SaysWhyAndWhatInstead) {
  const auto target = find_gpu(GetParam().typed);
  ASSERT_FALSE(target) << target->name;
  EXPECT_THAT(target.error().what, HasSubstr(GetParam().what));
  EXPECT_LT(target.error().what.size(), 500u);
  EXPECT_THAT(target.error().hints, Contains(HasSubstr(GetParam().hint)));
}

INSTANTIATE_TEST_SUITE_P(
    Gpus, Refused,
    ::testing::Values(Refusal{"", "no GPU named ''", "sm_120"}, Refusal{" _-", "no GPU named ' _-'", "sm_120"},
                      Refusal{"NVIDIA", "no GPU named 'NVIDIA'", "sm_120"},
                      Refusal{"\xff\xfe\x80", "no GPU named '\\xff\\xfe\\x80'", "sm_120"},
                      Refusal{std::string("H1\0", 3), "no GPU named 'H1\\x00'", "H100"},
                      Refusal{"RTX 5091", "no GPU named 'RTX 5091'", "GeForce RTX 5090"},
                      Refusal{"H1000", "no GPU named 'H1000'", "H100"},
                      Refusal{"rtx pro 6000 server editoin", "no GPU named", "RTX PRO 6000 Server Edition"},
                      Refusal{"A100 40GB", "'A100 40GB' covers 2 products", "NVIDIA A100-SXM4-40GB, NVIDIA A100-PCIE"},
                      Refusal{"V100", "covers 3 products", "Tesla V100-PCIE-16GB"},
                      Refusal{"RTX 6000", "covers 4 products", "NVIDIA RTX 6000 Ada Generation"},
                      Refusal{"jetson", "covers 2 products", "NVIDIA Thor"},
                      Refusal{"Blackwell", "5 compute capabilities", "sm_100, sm_103, sm_110, sm_120, sm_121"},
                      Refusal{"sm_90f", "9.0 has no compile target sm_90f", "sm_90, sm_90a"},
                      Refusal{"sm_130", "compute capability 13.0 is not known", "12.0, 12.1"},
                      Refusal{"5.2", "compute capability 5.2 is not known", "7.0, 7.5"},
                      Refusal{"sm_1200", "no GPU named 'sm_1200'", "sm_120"},
                      Refusal{"12.00", "no GPU named", "sm_120"}, Refusal{"sm_", "no GPU named", "sm_120"}));

TEST(FindGpu, RefusesALongNameWithoutSearching) {
  const auto target = find_gpu(std::string(10000, 'x'));
  ASSERT_FALSE(target);
  EXPECT_THAT(target.error().what, HasSubstr("10000 bytes"));
  EXPECT_LT(target.error().what.size(), 200u);
}

TEST(FindGpu, EveryNameOnFileLeadsToItsProduct) {
  ASSERT_TRUE(facts());
  for (const auto& gpu : facts()->gpus) {
    std::vector<std::string> names = gpu.aliases;
    names.push_back(gpu.name);
    for (const auto& name : names) {
      const auto target = find_gpu(name);
      ASSERT_TRUE(target) << name;
      EXPECT_EQ(target->name, gpu.name) << name;
      EXPECT_EQ(target->compute_capability, gpu.compute_capability) << name;
    }
  }
}

TEST(FindGpu, FillsTheTargetFromBothFiles) {
  const auto target = find_gpu("H200");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->compute_capability, "9.0");
  EXPECT_EQ(target->cores, 132);
  EXPECT_EQ(target->memory_bytes, 150754820096);  // 143771 MiB
  EXPECT_EQ(target->memory_gb_s, 4800.0);
  EXPECT_EQ(target->l2_bytes, 60 * 1024 * 1024);
  EXPECT_EQ(target->smem_per_block_bytes, 227 * 1024);
  EXPECT_EQ(target->smem_per_sm_bytes, 228 * 1024);
  EXPECT_EQ(target->bf16_tflops, 989.0);
  EXPECT_EQ(target->fp8_tflops, 1979.0);
  EXPECT_EQ(target->fp4_tflops, std::nullopt);
  EXPECT_EQ(target->tdp_w, 700.0);
  EXPECT_EQ(
      target->source,
      "data/gpus.toml, 2026-08-24: aiconfigurator system yaml; device dumps; confidence high; from memory: boost_mhz");
  EXPECT_EQ(target->simd, std::nullopt);
  EXPECT_EQ(find_gpu("H200 NVL")->memory_bytes, 141000000000);  // the driver's number is not on file
}

TEST(FindGpu, ACapabilityHasLimitsAndNoProductsNumbers) {
  const auto target = find_gpu("sm_120a");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->compute_capability, "12.0");
  EXPECT_EQ(target->smem_per_block_bytes, 99 * 1024);
  EXPECT_EQ(target->cores, std::nullopt);
  EXPECT_EQ(target->memory_gb_s, std::nullopt);
  EXPECT_EQ(target->bf16_tflops, std::nullopt);
  EXPECT_THAT(target->source, HasSubstr("data/archs.toml, 20"));
  EXPECT_EQ(*target, *find_gpu("12.0"));
}

TEST(FindGpu, AVoltaPeakIsNotABf16Peak) {
  EXPECT_EQ(find_gpu("T4")->bf16_tflops, std::nullopt);
  EXPECT_THAT(find_gpu("T4")->features, Not(Contains("mma_bf16")));
}

std::vector<std::string> where(std::string_view feature, Support support) {
  std::vector<std::string> capabilities;
  for (const auto& arch : facts()->archs) {
    const auto answer = arch_feature(arch.compute_capability, feature);
    if (answer && answer->support == support) capabilities.push_back(arch.compute_capability);
  }
  return capabilities;
}

TEST(ArchFeature, Fp8MmaIsNativeOnThreeAndEmulatedOnFour) {
  EXPECT_THAT(where("mma_fp8", Support::native), ElementsAre("8.9", "12.0", "12.1"));
  EXPECT_THAT(where("mma_fp8", Support::emulated), ElementsAre("9.0", "10.0", "10.3", "11.0"));
  EXPECT_EQ(arch_feature("8.9", "mma_fp8")->targets, "any");
  EXPECT_EQ(arch_feature("9.0", "mma_fp8")->known, Known::machine_code);
  EXPECT_THAT(arch_feature("9.0", "mma_fp8")->note, HasSubstr("wgmma"));
  EXPECT_THAT(find_gpu("H200")->features, Not(Contains("mma_fp8")));
  EXPECT_THAT(find_gpu("L40S")->features, Contains("mma_fp8"));
}

TEST(ArchFeature, EveryFamilyIsWhereItBelongs) {
  EXPECT_THAT(where("wgmma", Support::native), ElementsAre("9.0"));
  EXPECT_EQ(arch_feature("9.0", "wgmma")->targets, "a");
  for (const auto* feature : {"mma_block_scale_mxf8f6f4", "mma_block_scale_mxf4", "mma_block_scale_mxf4nvf4"}) {
    EXPECT_THAT(where(feature, Support::native), ElementsAre("12.0", "12.1")) << feature;
    EXPECT_EQ(arch_feature("12.0", feature)->targets, "f/a");
    EXPECT_THAT(where(feature, Support::emulated), ElementsAre());
  }
  EXPECT_THAT(where("tcgen05", Support::native), ElementsAre("10.0", "10.3", "11.0"));
  EXPECT_EQ(arch_feature("10.0", "tcgen05")->targets, "f/a");
  EXPECT_THAT(where("tcgen05_i8", Support::native), ElementsAre("10.0", "11.0"));
  EXPECT_THAT(where("tma_multicast", Support::native), ElementsAre("9.0", "10.0", "10.3", "11.0"));
  EXPECT_THAT(where("tma_gather4", Support::native), ElementsAre("10.0", "10.3", "11.0", "12.0", "12.1"));
  EXPECT_THAT(where("clusters", Support::native), ElementsAre("9.0", "10.0", "10.3", "11.0", "12.0", "12.1"));
  EXPECT_THAT(where("cvt_fp4", Support::native), ElementsAre("10.0", "10.3", "11.0", "12.0", "12.1"));
  EXPECT_THAT(where("cp_async", Support::no), ElementsAre("7.0", "7.5"));
  EXPECT_THAT(where("mma_bf16", Support::no), ElementsAre("7.0", "7.5"));
  EXPECT_THAT(where("mma_s4", Support::native), ElementsAre("8.0", "8.6", "8.7", "8.8", "8.9"));
  EXPECT_EQ(arch_feature("7.0", "wgmma")->targets, "");
}

TEST(ArchFeature, NinetyNineKibibytesWhereHopperPlansDoNotFit) {
  for (const auto* capability : {"8.6", "8.9", "12.0", "12.1"})
    EXPECT_EQ(find_gpu(capability)->smem_per_block_bytes, 101376) << capability;
}

TEST(ArchFeature, UnknownNamesAreErrors) {
  const auto capability = arch_feature("13.0", "wgmma");
  ASSERT_FALSE(capability);
  EXPECT_THAT(capability.error().hints, Contains(HasSubstr("9.0")));
  const auto feature = arch_feature("9.0", "wgmmma");
  ASSERT_FALSE(feature);
  EXPECT_THAT(feature.error().hints, Contains(HasSubstr("wgmma")));
  EXPECT_FALSE(arch_feature("sm_90", "wgmma"));
  EXPECT_FALSE(arch_feature("", ""));
  EXPECT_FALSE(arch_feature("9.0", std::string(100000, 'w')));
}

}  // namespace
}  // namespace moetune
