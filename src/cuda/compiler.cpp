#include "cuda/compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "cuda/compile_log.h"

namespace moetune::cuda {
namespace {

constexpr int kMinMajor = 12;

/// Names of options that would make the result depend on files, change the target or build something other than a
/// cubin.
constexpr std::array<std::string_view, 21> kRefusedOptions = {"I",
                                                              "include-path",
                                                              "include",
                                                              "pre-include",
                                                              "arch",
                                                              "gpu-architecture",
                                                              "std",
                                                              "dc",
                                                              "device-c",
                                                              "rdc",
                                                              "relocatable-device-code",
                                                              "dlto",
                                                              "gen-opt-lto",
                                                              "optix-ir",
                                                              "time",
                                                              "fdevice-time-trace",
                                                              "pch",
                                                              "create-pch",
                                                              "use-pch",
                                                              "pch-dir",
                                                              "pch-verbose"};

bool is_refused(std::string_view option) {
  const auto dashes = option.find_first_not_of('-');
  if (dashes == std::string_view::npos || dashes == 0) return false;
  const auto name = option.substr(dashes, option.find('=') - dashes);
  // -I takes its folder without a space.
  return name.starts_with('I') ||
         std::find(kRefusedOptions.begin(), kRefusedOptions.end(), name) != kRefusedOptions.end();
}

/// A program of NVRTC's, destroyed with this.
class Program {
 public:
  Program(const NvrtcApi& api, const KernelSource& source) : api_(api) {
    std::vector<const char*> texts, names;
    for (const auto& [name, text] : source.headers) {
      names.push_back(name.c_str());
      texts.push_back(text.c_str());
    }
    code_ = api.create(&program_, source.text.c_str(), source.name.c_str(), static_cast<int>(names.size()),
                       texts.data(), names.data());
    for (const auto& expression : source.expressions)
      if (code_ == nvrtc::kSuccess) code_ = api.add_expression(program_, expression.c_str());
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (program_ != nullptr) (void)api_.destroy(&program_);
  }

  /// `report`: the assembler tells of every kernel what it takes (-v).
  [[nodiscard]] nvrtc::Code compile(const std::string& target, const std::vector<std::string>& options, bool report) {
    if (code_ != nvrtc::kSuccess) return code_;
    const std::string architecture = "--gpu-architecture=" + target;
    // --no-source-include: headers are the embedded ones, never files of the current folder.
    std::vector<const char*> all = {architecture.c_str(), "--std=c++20", "--no-source-include"};
    if (report) all.push_back("--ptxas-options=-v");
    for (const auto& option : options) all.push_back(option.c_str());
    return code_ = api_.compile(program_, static_cast<int>(all.size()), all.data());
  }
  [[nodiscard]] std::string log() const {
    std::size_t size = 0;
    if (program_ == nullptr || api_.log_size(program_, &size) != nvrtc::kSuccess || size <= 1) return {};
    std::string text(size, '\0');
    if (api_.log(program_, text.data()) != nvrtc::kSuccess) return {};
    text.resize(text.find('\0') == std::string::npos ? size : text.find('\0'));
    return text;
  }
  [[nodiscard]] nvrtc::Program get() const { return program_; }

 private:
  const NvrtcApi& api_;
  nvrtc::Program program_ = nullptr;
  nvrtc::Code code_ = nvrtc::kSuccess;
};

std::uintmax_t file_bytes(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

/// What makes a source no input for the compiler.
std::optional<std::string> objection(const KernelSource& source) {
  for (const auto& option : source.options)
    if (is_refused(option)) return "option " + option + " would make the result depend on more than the source";
  if (source.text.find('\0') != std::string::npos) return "the text of " + source.name + " holds a zero byte";
  for (const auto& [name, text] : source.headers)
    if (text.find('\0') != std::string::npos) return "the text of " + name + " holds a zero byte";
  return std::nullopt;
}

}  // namespace

const std::string& CompiledKernel::name(const std::string& expression) const {
  const auto found = lowered.find(expression);
  return found == lowered.end() ? expression : found->second;
}

const KernelResources* CompiledKernel::resources(const std::string& expression) const {
  const auto& wanted = name(expression);
  const auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const auto& kernel) { return kernel.name == wanted; });
  return found == kernels.end() ? nullptr : &*found;
}

Answer<std::shared_ptr<const Compiler>> Compiler::open() { return open(nvrtc_search(search_roots(Env::nvrtc))); }

Answer<std::shared_ptr<const Compiler>> Compiler::open(const LibrarySearch& search) {
  const auto compiler = std::shared_ptr<Compiler>(new Compiler);
  auto library = find_library(search, [&](const DynamicLibrary& candidate) { return compiler->adopt(candidate); });
  if (!library) return refuse(std::move(library).error());
  return compiler;
}

std::optional<std::string> Compiler::adopt(const DynamicLibrary& library) {
  // The version first: an old one lacks functions too, and "too old" says more than their names.
  int major = 0, minor = 0;
  const auto version = library.symbol<nvrtc::Code (*)(int*, int*)>("nvrtcVersion");
  if (version != nullptr && version(&major, &minor) == nvrtc::kSuccess && major < kMinMajor)
    return fmt::format("it is NVRTC {}.{} and {}.0 is needed: too old", major, minor, kMinMajor);
  if (auto missing = resolve(library, api_)) return missing;
  version_ = fmt::format("{}.{}", major, minor);
  path_ = library.path();
  // NVRTC opens this one by its name alone when it first compiles; opened here from the same folder, it is found there.
  const auto builtins = std::filesystem::path(path_).parent_path() / ("libnvrtc-builtins.so." + version_);
  const std::string name = builtins.string();
  if (file_bytes(builtins) > 0) (void)DynamicLibrary::open(std::span(&name, 1));
  // Updates keep the version; their sizes differ.
  identity_ = fmt::format("nvrtc {} {} {}", version_, file_bytes(path_), file_bytes(builtins));

  const auto targets = plain_targets();
  if (targets.empty()) return "it supports no target";
  Program program(api_, {"empty.cu", "", {}, "", {}, {}});
  const auto code = program.compile(fmt::format("sm_{}", targets.back()), {}, false);
  std::size_t bytes = 0;
  if (code == nvrtc::kBuiltinOperationFailure)
    return fmt::format("it does not find {}, which belongs beside it", builtins.filename().string());
  if (code != nvrtc::kSuccess || api_.cubin_size(program.get(), &bytes) != nvrtc::kSuccess || bytes == 0)
    return fmt::format("it does not compile an empty program: {} {}", api_.error_string(code),
                       errors_of(program.log()));
  return std::nullopt;
}

std::vector<int> Compiler::plain_targets() const {
  constexpr int kMaxTargets = 1000;
  int count = 0;
  if (api_.supported_arch_count(&count) != nvrtc::kSuccess || count <= 0 || count > kMaxTargets) return {};
  std::vector<int> targets(static_cast<std::size_t>(count));
  if (api_.supported_archs(targets.data()) != nvrtc::kSuccess) return {};
  std::sort(targets.begin(), targets.end());
  return targets;
}

bool Compiler::knows(const std::string& target) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(target); found != known_.end()) return found->second;
  }
  Program program(api_, {"empty.cu", "", {}, "", {}, {}});
  const bool known = program.compile(target, {}, false) == nvrtc::kSuccess;
  const std::lock_guard lock(mutex_);
  return known_[target] = known;
}

std::vector<std::string> Compiler::supported_targets() const {
  // Targets with features of their own exist from 9.0 on; `f` ones from 10.0 on.
  constexpr int kFirstOwn = 90;
  std::vector<std::string> targets;
  for (const int plain : plain_targets()) {
    const std::string name = fmt::format("sm_{}", plain);
    targets.push_back(name);
    for (const auto* suffix : {"a", "f"})
      if (plain >= kFirstOwn && knows(name + suffix)) targets.push_back(name + suffix);
  }
  return targets;
}

Reasons Compiler::why_not(const std::string& target) const {
  if (knows(target)) return {};
  std::string list;
  for (const int plain : plain_targets()) list += fmt::format("{}sm_{}", list.empty() ? "" : " ", plain);
  return {{ReasonCode::toolchain, fmt::format("NVRTC {} does not compile for {}", version_, target),
           fmt::format("a CUDA compiler that knows {}", target),
           fmt::format("install a newer nvidia-cuda-nvrtc; this one knows {}", list), ""}};
}

CompileResult Compiler::compile(const KernelSource& source) const {
  if (const auto what = objection(source))
    return tl::unexpected(
        CompileFailure{{ReasonCode::toolchain, *what, "a source that stands alone", "", source_of(source)}, false});
  Program program(api_, source);
  const auto code = program.compile(source.target, source.options, true);
  const auto log = program.log();
  if (code == nvrtc::kSuccess) return collect(source, program.get(), log);
  if (code != nvrtc::kCompilation || !errors_of(log).empty()) return tl::unexpected(failure(source, code, log));
  // Where the report is asked for, NVRTC 12.8 and 13.0 put it in the place of some of the assembler's errors.
  Program again(api_, source);
  const auto second = again.compile(source.target, source.options, false);
  return tl::unexpected(failure(source, second == nvrtc::kSuccess ? code : second, again.log()));
}

std::string Compiler::source_of(const KernelSource& source) const {
  return fmt::format("NVRTC {} compiling {} for {}", version_, source.name, source.target);
}

CompileFailure Compiler::failure(const KernelSource& source, nvrtc::Code code, const std::string& log) const {
  CompileFailure failure;
  if (auto unknown = why_not(source.target); !unknown.empty()) {
    failure.reason = std::move(unknown.front());
  } else if (code == nvrtc::kCompilation) {
    failure.reason = reason_of(log, source.target, "NVRTC " + version_);
    failure.in_source = true;
  } else if (code == nvrtc::kOutOfMemory) {
    failure.reason = {ReasonCode::memory, fmt::format("NVRTC {} ran out of memory", version_), "more host memory", "",
                      ""};
  } else {
    failure.reason = {ReasonCode::toolchain,
                      fmt::format("NVRTC {}: {}: {}", version_, api_.error_string(code), errors_of(log)),
                      "a compiler that takes the program", "", ""};
  }
  failure.reason.source = source_of(source);
  return failure;
}

CompileResult Compiler::collect(const KernelSource& source, nvrtc::Program program, const std::string& log) const {
  const auto reject = [&](std::string have, std::string need) {
    return tl::unexpected(
        CompileFailure{{ReasonCode::toolchain, std::move(have), std::move(need), "", source_of(source)}, false});
  };
  CompiledKernel kernel;
  std::size_t bytes = 0;
  const auto code = api_.cubin_size(program, &bytes);
  // NVRTC has answered "success, 0 bytes" for programs that failed.
  if (code != nvrtc::kSuccess || bytes == 0)
    return reject(
        fmt::format("NVRTC {} reports success and a cubin of {} bytes: {}", version_, bytes, api_.error_string(code)),
        "machine code");
  kernel.cubin.resize(bytes);
  if (const auto got = api_.cubin(program, kernel.cubin.data()); got != nvrtc::kSuccess)
    return reject(fmt::format("NVRTC {} does not give the cubin: {}", version_, api_.error_string(got)),
                  "machine code");
  for (const auto& expression : source.expressions) {
    const char* name = nullptr;
    if (const auto got = api_.lowered_name(program, expression.c_str(), &name);
        got != nvrtc::kSuccess || name == nullptr)
      return reject(fmt::format("NVRTC {} has no name for {}: {}", version_, expression, api_.error_string(got)),
                    "a kernel of that name");
    kernel.lowered[expression] = name;
  }
  auto kernels = read_cubin(kernel.cubin);
  if (!kernels) return reject(std::move(kernels).error().what, "a cubin with kernels");
  kernel.kernels = *std::move(kernels);
  read_spills(log, kernel.kernels);
  kernel.log = warnings_of(log);
  return kernel;
}

}  // namespace moetune::cuda
