#include "cuda/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "cuda/test_compiler.h"

namespace moetune::cuda {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SearchRoots named(const std::string& path) {
  SearchRoots roots;
  roots.named = path;
  return roots;
}

class CompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    compiler_ = test_compiler();
    if (compiler_ == nullptr) GTEST_FAIL();
  }
  std::shared_ptr<const Compiler> compiler_;
};

/// Of the three kernels, as `cuobjdump --dump-resource-usage` (CUDA 13.0) shows them of NVRTC 13.0's cubins, less the
/// 1024 bytes of shared memory that the system reserves from 9.0 on; spilled bytes as `-v` reports them.
struct Expected {
  const char* target;
  std::int64_t reverse_registers, crowded_registers, crowded_stack, crowded_spills;
};
constexpr Expected kExpected[] = {
    {"sm_80", 9, 32, 120, 128},   {"sm_86", 9, 64, 0, 0},        {"sm_89", 9, 64, 0, 0},
    {"sm_90a", 10, 32, 120, 128}, {"sm_100a", 10, 32, 120, 128}, {"sm_103a", 10, 32, 120, 128},
    {"sm_110a", 10, 64, 0, 0},    {"sm_120a", 10, 64, 0, 0},     {"sm_121a", 10, 64, 0, 0}};

TEST_F(CompilerTest, CompilesForEveryTargetWithResourcesRead) {
  for (const auto& expected : kExpected) {
    SCOPED_TRACE(expected.target);
    if (!compiler_->why_not(expected.target).empty() && compiler_->version() != "13.0") continue;
    const auto kernel = compiler_->compile(three_kernels(expected.target));
    ASSERT_TRUE(kernel) << kernel.error().reason.have;
    EXPECT_EQ(kernel->kernels.size(), 3U);
    const auto* reverse = kernel->resources("reverse");
    const auto* crowded = kernel->resources("crowded");
    const auto* dynamic = kernel->resources("space::dynamic<Tile<2>>");
    ASSERT_TRUE(reverse != nullptr && crowded != nullptr && dynamic != nullptr);
    EXPECT_EQ(dynamic->name, "_ZN5space7dynamicI4TileILi2EEEEvPfT_i");
    EXPECT_EQ(reverse->static_shared_bytes, 4096);
    EXPECT_EQ(crowded->static_shared_bytes, 0);
    EXPECT_EQ(dynamic->static_shared_bytes, 0);
    EXPECT_EQ(reverse->max_threads, 256);
    EXPECT_EQ(crowded->max_threads, 1024);
    EXPECT_EQ(dynamic->max_threads, std::nullopt);
    EXPECT_EQ(reverse->parameter_bytes, 12);
    EXPECT_EQ(dynamic->parameter_bytes, 20);
    EXPECT_EQ(reverse->stack_bytes, 0);
    EXPECT_EQ(reverse->spill_store_bytes, 0);
    EXPECT_GT(dynamic->stack_bytes, 0);
    if (compiler_->version() != "13.0") continue;
    EXPECT_EQ(reverse->registers, expected.reverse_registers);
    EXPECT_EQ(crowded->registers, expected.crowded_registers);
    EXPECT_EQ(crowded->stack_bytes, expected.crowded_stack);
    EXPECT_EQ(crowded->spill_store_bytes, expected.crowded_spills);
    EXPECT_EQ(crowded->spill_load_bytes, expected.crowded_spills);
    EXPECT_EQ(dynamic->registers, 20);
    EXPECT_EQ(dynamic->stack_bytes, 48);
  }
}

TEST_F(CompilerTest, TheSameSourceGivesTheSameBytes) {
  const auto first = compiler_->compile(three_kernels("sm_90a"));
  const auto second = compiler_->compile(three_kernels("sm_90a"));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->cubin, second->cubin);
}

TEST_F(CompilerTest, OptionsReachTheCompiler) {
  auto source = scale_kernel("sm_80");
  source.text += "\n#ifdef REFUSE\n#error told so\n#endif\n";
  EXPECT_TRUE(compiler_->compile(source));
  source.options = {"-DREFUSE"};
  const auto refused = compiler_->compile(source);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().reason.have, HasSubstr("told so"));
}

TEST_F(CompilerTest, AWrongProgramGivesTheCompilersWords) {
  auto source = scale_kernel("sm_80");
  source.text += "extern \"C\" __global__ void wrong() { undefined_thing(); }\n";
  const auto kernel = compiler_->compile(source);
  ASSERT_FALSE(kernel);
  const auto& failure = kernel.error();
  EXPECT_TRUE(failure.in_source);
  EXPECT_EQ(failure.reason.code, ReasonCode::toolchain);
  EXPECT_THAT(failure.reason.have, HasSubstr("scale.cu(6): error: identifier \"undefined_thing\" is undefined"));
  EXPECT_EQ(failure.reason.source, "NVRTC " + compiler_->version() + " compiling scale.cu for sm_80");
}

TEST_F(CompilerTest, AnInstructionTheTargetLacksIsAnArchReasonThatNamesIt) {
  KernelSource source;
  source.name = "wgmma.cu";
  source.text = "extern \"C\" __global__ void fence() { asm volatile(\"wgmma.fence.sync.aligned;\"); }\n";
  source.target = "sm_90a";
  ASSERT_TRUE(compiler_->compile(source));
  source.target = "sm_120a";
  const auto kernel = compiler_->compile(source);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().reason.code, ReasonCode::arch);
  EXPECT_TRUE(kernel.error().in_source);
  EXPECT_EQ(kernel.error().reason.need, "a target with wgmma.fence");
  EXPECT_THAT(kernel.error().reason.have, HasSubstr("sm_120a"));
}

TEST_F(CompilerTest, TooMuchStaticSharedMemoryIsASharedMemoryReason) {
  KernelSource source;
  source.name = "large.cu";
  source.text =
      "extern \"C\" __global__ void large(float* p) { __shared__ float s[60000]; s[threadIdx.x] = p[threadIdx.x]; "
      "__syncthreads();"
      " p[threadIdx.x] = s[threadIdx.x ^ 1]; }\n";
  source.target = "sm_120a";
  const auto kernel = compiler_->compile(source);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().reason.code, ReasonCode::shared_memory);
  EXPECT_EQ(kernel.error().reason.have, "kernel large declares 240000 bytes of shared memory");
  EXPECT_THAT(kernel.error().reason.need, ::testing::MatchesRegex("at most [0-9]+ bytes for sm_120a"));
  // 99 KB; older assemblers allow no more than 48 KB of static shared memory on any target.
  if (compiler_->version() == "13.0") {
    EXPECT_EQ(kernel.error().reason.need, "at most 101376 bytes for sm_120a");
  }
}

TEST_F(CompilerTest, AnUnknownTargetIsNotTheProgramsFault) {
  for (const std::string target : {"sm_30", "sm_75a", "sm_12", "nonsense", ""}) {
    const auto kernel = compiler_->compile(scale_kernel(target));
    ASSERT_FALSE(kernel) << target;
    EXPECT_FALSE(kernel.error().in_source);
    EXPECT_EQ(kernel.error().reason.code, ReasonCode::toolchain);
    EXPECT_THAT(kernel.error().reason.have, HasSubstr("does not compile for " + target));
    EXPECT_THAT(kernel.error().reason.hint, HasSubstr("sm_90"));
    EXPECT_EQ(compiler_->why_not(target).size(), 1U);
  }
  EXPECT_THAT(compiler_->why_not("sm_90a"), IsEmpty());
}

TEST_F(CompilerTest, AnUnknownKernelNameIsTold) {
  auto source = scale_kernel("sm_80");
  source.expressions = {"no_such_kernel<3>"};
  const auto kernel = compiler_->compile(source);
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.error().reason.have, HasSubstr("no_such_kernel"));
}

TEST_F(CompilerTest, HeadersAreOnlyTheEmbeddedOnes) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "headers";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "on_disk.cuh") << "\n";
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  auto source = scale_kernel("sm_80");
  source.text = "#include \"on_disk.cuh\"\n" + source.text;
  const auto kernel = compiler_->compile(source);
  std::filesystem::current_path(before);
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.error().reason.have, HasSubstr("on_disk.cuh"));
  source.headers["on_disk.cuh"] = "";
  EXPECT_TRUE(compiler_->compile(source));
}

TEST_F(CompilerTest, OptionsThatReadFilesOrChangeTheTargetAreRefused) {
  for (const std::string option :
       {"-I/usr/include", "-I", "--include-path=/usr/include", "-include=a.h", "--pre-include", "-arch=sm_80",
        "--gpu-architecture=sm_80", "-std=c++17", "-dlto", "--device-c", "-rdc=true", "--pch"}) {
    auto source = scale_kernel("sm_80");
    source.options = {option};
    const auto kernel = compiler_->compile(source);
    ASSERT_FALSE(kernel) << option;
    EXPECT_THAT(kernel.error().reason.have, HasSubstr(option));
  }
}

TEST_F(CompilerTest, AZeroByteIsRefusedAndNotACut) {
  auto source = scale_kernel("sm_80");
  source.text += '\0';
  source.text += "#error beyond\n";
  EXPECT_FALSE(compiler_->compile(source));
  source = scale_kernel("sm_80");
  source.headers["a.cuh"] = std::string("\0#error beyond\n", 15);
  EXPECT_FALSE(compiler_->compile(source));
}

TEST_F(CompilerTest, ATextWithoutKernelsIsTold) {
  auto source = scale_kernel("sm_80");
  source.text = "__device__ int unused;\n";
  const auto kernel = compiler_->compile(source);
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.error().reason.have, HasSubstr("no kernel"));
}

TEST_F(CompilerTest, ListsTheTargetsItTakes) {
  const auto targets = compiler_->supported_targets();
  for (const auto* target : {"sm_80", "sm_90", "sm_90a"}) EXPECT_THAT(targets, Contains(target));
  EXPECT_THAT(targets, ::testing::Not(Contains("sm_80a")));
  EXPECT_THAT(targets, ::testing::Not(Contains("sm_90f")));
  if (compiler_->version() != "13.0") return;
  for (const auto* target : {"sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_120f", "sm_121a"})
    EXPECT_THAT(targets, Contains(target));
}

TEST_F(CompilerTest, CompilesOnSeveralThreadsAtOnce) {
  std::vector<std::string> cubins(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cubins.size(); ++i)
    threads.emplace_back([&, i] {
      if (auto kernel = compiler_->compile(scale_kernel(i % 2 == 0 ? "sm_80" : "sm_90a"))) cubins[i] = kernel->cubin;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(cubins[0].empty());
  EXPECT_FALSE(cubins[1].empty());
  EXPECT_EQ(cubins[0], cubins[2]);
  EXPECT_EQ(cubins[1], cubins[3]);
}

TEST_F(CompilerTest, ADamagedCubinIsAnErrorAndNoCrash) {
  const auto kernel = compiler_->compile(three_kernels("sm_120a"));
  ASSERT_TRUE(kernel);
  const std::string& whole = kernel->cubin;
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 50) {
    const auto cut = read_cubin(std::string_view(whole).substr(0, length));
    if (cut) {
      EXPECT_LE(cut->size(), 3U);
    }
  }
  std::mt19937_64 random(1);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 4; ++i) {
      // The header and the tables at both ends are where damage hurts.
      const std::size_t span = i % 2 == 0 ? 4096 : damaged.size();
      const std::size_t at = random() % 2 == 0 ? random() % span : damaged.size() - 1 - random() % span;
      damaged[at] = static_cast<char>(random());
    }
    if (!read_cubin(damaged)) ++refused;
  }
  EXPECT_GT(refused, 100);
  EXPECT_FALSE(read_cubin(""));
  EXPECT_FALSE(read_cubin(std::string(4096, '\0')));
}

TEST(CompilerSearch, AbsentIsAReasonThatSaysHowToGetIt) {
  const auto compiler = Compiler::open(nvrtc_search(named("/nowhere/libnvrtc.so.13")));
  ASSERT_FALSE(compiler);
  EXPECT_EQ(compiler.error().code, ReasonCode::toolchain);
  EXPECT_THAT(compiler.error().have, HasSubstr("/nowhere/libnvrtc.so.13"));
  EXPECT_THAT(compiler.error().hint, HasSubstr("nvidia-cuda-nvrtc"));
  EXPECT_THAT(compiler.error().hint, HasSubstr("MOETUNE_NVRTC"));
}

TEST(CompilerSearch, ALibraryThatIsNoCompilerIsNamedWithWhatItLacks) {
  const auto compiler = Compiler::open(nvrtc_search(named("libm.so.6")));
  ASSERT_FALSE(compiler);
  EXPECT_THAT(compiler.error().have, HasSubstr("libm.so.6: it has no nvrtcVersion"));
}

/// NVRTC's functions with answers that a test sets (scripted_nvrtc.cpp).
class ScriptedNvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = CUDA_SCRIPTED_NVRTC;
    auto library = DynamicLibrary::open(std::span(&name, 1));
    ASSERT_TRUE(library) << library.error().what;
    library_ = *std::move(library);
    library_->symbol<void (*)(int, int)>("scripted_version")(13, 0);
  }
  void empty(int code, std::size_t bytes) {
    library_->symbol<void (*)(int, std::size_t)>("scripted_empty")(code, bytes);
  }
  void compile(int code, std::size_t bytes) {
    library_->symbol<void (*)(int, std::size_t)>("scripted_compile")(code, bytes);
  }
  static Answer<std::shared_ptr<const Compiler>> open() {
    return Compiler::open(nvrtc_search(named(CUDA_SCRIPTED_NVRTC)));
  }
  std::optional<DynamicLibrary> library_;
};

TEST_F(ScriptedNvrtc, TooOldSaysBothVersions) {
  library_->symbol<void (*)(int, int)>("scripted_version")(11, 8);
  const auto compiler = open();
  ASSERT_FALSE(compiler);
  EXPECT_THAT(compiler.error().have, HasSubstr("it is NVRTC 11.8 and 12.0 is needed: too old"));
}

TEST_F(ScriptedNvrtc, OneThatCannotCompileNothingIsBroken) {
  empty(5, 0);
  auto compiler = open();
  ASSERT_FALSE(compiler);
  EXPECT_THAT(compiler.error().have, HasSubstr("does not compile an empty program"));
  EXPECT_THAT(compiler.error().have, HasSubstr("error: as told"));
  empty(0, 0);
  EXPECT_FALSE(open());
  empty(nvrtc::kBuiltinOperationFailure, 0);
  compiler = open();
  ASSERT_FALSE(compiler);
  EXPECT_THAT(compiler.error().have, HasSubstr("libnvrtc-builtins.so.13.0"));
}

TEST_F(ScriptedNvrtc, SuccessWithoutMachineCodeIsAFailure) {
  const auto compiler = open();
  ASSERT_TRUE(compiler) << compiler.error().have;
  compile(0, 0);
  const auto nothing = (*compiler)->compile(scale_kernel("sm_90a"));
  ASSERT_FALSE(nothing);
  EXPECT_FALSE(nothing.error().in_source);
  EXPECT_THAT(nothing.error().reason.have, HasSubstr("a cubin of 0 bytes"));
  compile(0, 100);
  const auto garbage = (*compiler)->compile(scale_kernel("sm_90a"));
  ASSERT_FALSE(garbage);
  EXPECT_THAT(garbage.error().reason.have, HasSubstr("not a readable cubin"));
}

TEST_F(ScriptedNvrtc, AFailureOfTheSurroundingsIsNotTheProgramsFault) {
  const auto compiler = open();
  ASSERT_TRUE(compiler);
  compile(nvrtc::kOutOfMemory, 0);
  const auto memory = (*compiler)->compile(scale_kernel("sm_90a"));
  ASSERT_FALSE(memory);
  EXPECT_FALSE(memory.error().in_source);
  EXPECT_EQ(memory.error().reason.code, ReasonCode::memory);
  EXPECT_EQ(to_error(memory.error().reason).kind, ErrorKind::out_of_memory);
  compile(11, 0);
  const auto internal = (*compiler)->compile(scale_kernel("sm_90a"));
  ASSERT_FALSE(internal);
  EXPECT_FALSE(internal.error().in_source);
}

}  // namespace
}  // namespace moetune::cuda
