#include "cuda/compile_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/cubin.h"

namespace moetune::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Logs as NVRTC 12.8 and 13.0 wrote them.
constexpr const char* kWgmmaOn120 =
    "ptxas application ptx input, line 20; error   : Instruction 'wgmma.fence' not supported on .target 'sm_120a'\n"
    "ptxas application ptx input, line 20; error   : Instruction 'wgmma.fence' cannot be compiled for architecture "
    "'sm_120a'\n"
    "ptxas fatal   : Ptx assembly aborted due to errors\n\n";
constexpr const char* kTooMuchShared =
    "ptxas error   : Entry function 'w' uses too much shared data (0x3a980 bytes, 0x38c00 max)\n\n";
constexpr const char* kStaticAssert =
    "k.cu(1): error: static assertion failed with \"N too large\"\n"
    "  template<int N> __global__ void k(float*p){ static_assert(N<4,\"N too large\"); p[0]=N;}\n"
    "                                              ^\n"
    "          detected during instantiation of \"void k<N>(float *) [with N=7]\" at line 2\n\n"
    "1 error detected in the compilation of \"k.cu\".\n";
constexpr const char* kReport =
    "k.cu(1): warning #177-D: variable \"unused_v\" was declared but never referenced\n\n"
    "ptxas warning : Value of threads per SM for entry spill is out of range. .minnctapersm will be ignored\n"
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
    "ptxas info    : Compiling entry function 'spill' for 'sm_120a'\n"
    "ptxas info    : Function properties for spill\n"
    "ptxas         .     1664 bytes stack frame, 2688 bytes spill stores, 2352 bytes spill loads\n"
    "ptxas info    : Used 64 registers, used 1 barriers, 1664 bytes cumulative stack size\n"
    "ptxas info    : Compile time = 512.345 ms\n"
    "ptxas info    : Function properties for _Z6helperfPf\n"
    "ptxas         .     0 bytes stack frame, 7 bytes spill stores, 8 bytes spill loads\n";

TEST(CompileLog, AnInstructionThatTheTargetLacksIsNamed) {
  const auto reason = reason_of(kWgmmaOn120, "sm_120a", "NVRTC 13.0");
  EXPECT_EQ(reason.code, ReasonCode::arch);
  EXPECT_EQ(reason.need, "a target with wgmma.fence");
  EXPECT_THAT(reason.have, HasSubstr("Instruction 'wgmma.fence' not supported on .target 'sm_120a'"));
  EXPECT_THAT(reason.have, Not(HasSubstr("aborted")));
}

TEST(CompileLog, TooMuchSharedMemoryGivesBothNumbers) {
  const auto reason = reason_of(kTooMuchShared, "sm_90a", "NVRTC 13.0");
  EXPECT_EQ(reason.code, ReasonCode::shared_memory);
  EXPECT_EQ(reason.have, "kernel w declares 240000 bytes of shared memory");
  EXPECT_EQ(reason.need, "at most 232448 bytes for sm_90a");  // 227 KB
}

TEST(CompileLog, AnyOtherErrorIsTheCompilersWords) {
  const auto reason = reason_of(kStaticAssert, "sm_80", "NVRTC 12.8");
  EXPECT_EQ(reason.code, ReasonCode::toolchain);
  EXPECT_EQ(reason.have,
            "NVRTC 12.8 for sm_80: k.cu(1): error: static assertion failed with \"N too large\"; "
            "detected during instantiation of \"void k<N>(float *) [with N=7]\" at line 2");
}

TEST(CompileLog, WarningsStayWithoutTheReport) {
  EXPECT_EQ(warnings_of(kReport),
            "k.cu(1): warning #177-D: variable \"unused_v\" was declared but never referenced\n"
            "ptxas warning : Value of threads per SM for entry spill is out of range. .minnctapersm will be ignored\n"
            "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n");
  EXPECT_EQ(warnings_of(""), "");
  EXPECT_EQ(warnings_of(std::string("\0\0", 2)), "");
}

TEST(CompileLog, WordsAreBounded) {
  std::string log;
  for (int i = 0; i < 10'000; ++i) log += "k.cu(" + std::to_string(i) + "): error: identifier is undefined\n";
  EXPECT_LT(errors_of(log).size(), 2100U);
  EXPECT_LT(warnings_of(log).size(), 16'100U);
  EXPECT_LT(errors_of(std::string(1 << 20, 'e')).size(), 2100U);
}

TEST(CompileLog, NoWordsAreSaidToBeNone) {
  EXPECT_EQ(errors_of(""), "");
  EXPECT_EQ(errors_of("  \n\n"), "");
  EXPECT_EQ(errors_of("ptxas info    : 0 bytes gmem\n"), "");
  EXPECT_EQ(reason_of("", "sm_80", "NVRTC 13.0").have, "NVRTC 13.0 for sm_80: it gave no words");
  EXPECT_EQ(errors_of("something else\n"), "something else");
}

TEST(CompileLog, DamagedReportsOfSharedMemoryAreOnlyWords) {
  for (const char* log : {"Entry function 'w' uses too much shared data\n",
                          "uses too much shared data (0x bytes, 0x max)\n", "uses too much shared data (0x1 bytes\n"})
    EXPECT_EQ(reason_of(log, "sm_90a", "NVRTC").code, ReasonCode::toolchain) << log;
}

TEST(CompileLog, SpillsGoToTheKernelsTheyAreReportedOf) {
  std::vector<KernelResources> kernels(2);
  kernels[0].name = "other";
  kernels[1].name = "spill";
  read_spills(kReport, kernels);
  EXPECT_EQ(kernels[0].spill_store_bytes, std::nullopt);
  EXPECT_EQ(kernels[1].spill_store_bytes, 2688);
  EXPECT_EQ(kernels[1].spill_load_bytes, 2352);
  read_spills("ptxas info    : Function properties for other\n bytes spill stores\nx bytes spill loads\n", kernels);
  EXPECT_EQ(kernels[0].spill_store_bytes, std::nullopt);
  EXPECT_EQ(kernels[0].spill_load_bytes, std::nullopt);
}

}  // namespace
}  // namespace moetune::cuda
