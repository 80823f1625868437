// NVRTC, CUDA's run-time compiler: kernel text to machine code for one target, with no GPU and no file involved.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "cuda/answer.h"
#include "cuda/cubin.h"
#include "cuda/library_search.h"
#include "cuda/nvrtc_api.h"

namespace moetune::cuda {

/// Everything that the machine code depends on, but for the compiler.
struct KernelSource {
  std::string name;  ///< of the text, as the compiler's messages call it: "sm80_decode.cu"
  std::string text;  ///< one translation unit
  std::map<std::string, std::string>
      headers;         ///< text by the name that #include gives it; nothing else can be included
  std::string target;  ///< "sm_90a"
  /// Further options of NVRTC, e.g. "-DTILE=64". Options that read files, choose the target or change what is built are
  /// refused.
  std::vector<std::string> options;
  std::vector<std::string> expressions;  ///< kernels as C++ names them: "moetune::sm80::decode<Config>"

  bool operator==(const KernelSource&) const = default;
};

struct CompiledKernel {
  std::string cubin;
  std::string log;                             ///< warnings; empty where there were none
  std::map<std::string, std::string> lowered;  ///< name in the cubin of each expression
  std::vector<KernelResources> kernels;        ///< all kernels in the cubin

  /// Of an expression of the source, or of a kernel by its name in the cubin; null where it has none.
  [[nodiscard]] const KernelResources* resources(const std::string& expression) const;
  /// The name in the cubin: the expression's, or the name itself where it is extern "C".
  [[nodiscard]] const std::string& name(const std::string& expression) const;
};

/// Why there is no machine code.
struct CompileFailure {
  Reason reason;
  bool in_source = false;  ///< the compiler refused the program itself, so that it would do so again
};
using CompileResult = tl::expected<CompiledKernel, CompileFailure>;

/// May be used from several threads at once.
class Compiler {
 public:
  /// NVRTC 12.0 or newer that compiles an empty program. The Reason tells absent, too old and broken apart.
  [[nodiscard]] static Answer<std::shared_ptr<const Compiler>> open();
  [[nodiscard]] static Answer<std::shared_ptr<const Compiler>> open(const LibrarySearch& search);

  /// As C++20. A failure has the compiler's words, at most 2 kB of them: arch where the target lacks an instruction,
  /// shared_memory where a kernel declares more than the target has, toolchain for the rest.
  [[nodiscard]] CompileResult compile(const KernelSource& source) const;

  /// "13.0"
  [[nodiscard]] const std::string& version() const { return version_; }
  /// Changes with any build of the compiler: its version and the sizes of its libraries. Part of a cache key.
  [[nodiscard]] const std::string& identity() const { return identity_; }
  /// The library's file, for people.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Empty where it can compile for that target ("sm_90a").
  [[nodiscard]] Reasons why_not(const std::string& target) const;
  /// "sm_75", …, "sm_90", "sm_90a", …, "sm_121f". NVRTC lists the plain ones; the others are put to it, about 10 ms
  /// each the first time.
  [[nodiscard]] std::vector<std::string> supported_targets() const;

 private:
  Compiler() = default;
  [[nodiscard]] std::optional<std::string> adopt(const DynamicLibrary& library);
  [[nodiscard]] std::vector<int> plain_targets() const;
  [[nodiscard]] bool knows(const std::string& target) const;
  [[nodiscard]] CompileFailure failure(const KernelSource& source, nvrtc::Code code, const std::string& log) const;
  [[nodiscard]] CompileResult collect(const KernelSource& source, nvrtc::Program program, const std::string& log) const;
  [[nodiscard]] std::string source_of(const KernelSource& source) const;

  NvrtcApi api_;
  std::string version_, identity_, path_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, bool> known_;  ///< targets that were put to it
};

}  // namespace moetune::cuda
