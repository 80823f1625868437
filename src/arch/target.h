// Where code runs: a CPU with its SIMD level or a GPU with its limits, and what is known of both.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fields.h"

namespace moetune {

enum class TargetKind { cpu, gpu };

template <>
struct EnumNames<TargetKind> {
  static constexpr std::array<std::string_view, 2> names = {"cpu", "gpu"};
};

/// A place to run. Limits that are not known are absent, never guessed.
struct Target {
  TargetKind kind = TargetKind::cpu;
  std::string name;
  std::optional<std::string> compute_capability;  ///< GPU: "12.0"
  std::optional<std::string> simd;    ///< CPU: the best level here: "avx2", "avx512", "avx512_bf16", "neon", "scalar"
  std::vector<std::string> features;  ///< CPU: flags that matter ("avx512_vnni", …); GPU: instruction families of arch/
  std::optional<std::int64_t> cores;  ///< CPU: processors this process may use;  GPU: multiprocessors
  std::optional<std::int64_t> l1_bytes, l2_bytes,
      l3_bytes;  ///< CPU: per core, per core, all of it;  GPU: none, all of it, none
  std::optional<std::int64_t> memory_bytes;
  std::optional<double> memory_gb_s;  ///< GPU: by its data sheet
  std::optional<std::int64_t> smem_per_block_bytes, smem_per_sm_bytes;
  std::optional<double> bf16_tflops, fp8_tflops, fp4_tflops;  ///< GPU: dense peaks by its data sheet
  std::optional<double> tdp_w, boost_mhz;
  std::string source;  ///< "probed", or the data file and its source

  bool operator==(const Target&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("kind", self.kind);
    visit("name", self.name);
    visit("compute_capability", self.compute_capability);
    visit("simd", self.simd);
    visit("features", self.features);
    visit("cores", self.cores);
    visit("l1_bytes", self.l1_bytes);
    visit("l2_bytes", self.l2_bytes);
    visit("l3_bytes", self.l3_bytes);
    visit("memory_bytes", self.memory_bytes);
    visit("memory_gb_s", self.memory_gb_s);
    visit("smem_per_block_bytes", self.smem_per_block_bytes);
    visit("smem_per_sm_bytes", self.smem_per_sm_bytes);
    visit("bf16_tflops", self.bf16_tflops);
    visit("fp8_tflops", self.fp8_tflops);
    visit("fp4_tflops", self.fp4_tflops);
    visit("tdp_w", self.tdp_w);
    visit("boost_mhz", self.boost_mhz);
    visit("source", self.source);
  }
};

/// This machine's CPU, read from the processor and the system.
[[nodiscard]] Target probe_cpu();

/// A GPU by product name, NVML name, alias ("H200_NVL", "rtx pro 6000") or target ("sm_120a", "12.0"), from
/// data/gpus.toml and data/archs.toml. A marketing name that covers several products answers with the one the data
/// marks as meant, or lists them. A target stands for a chip of its capability with no product's numbers; its suffix is
/// checked and changes nothing, since how code is compiled is the backend's choice. `features` holds what the
/// capability has natively for at least one of its compile targets. `memory_bytes` is what the driver reports, else the
/// size as sold in units of 10^9 bytes. An unknown name is an Error that names the nearest known ones.
[[nodiscard]] Result<Target> find_gpu(std::string_view name);

/// Whether a compute capability has an instruction feature, and for which compile targets ("120a"). See
/// data/archs.toml.
enum class Support { no, emulated, native };

template <>
struct EnumNames<Support> {
  static constexpr std::array<std::string_view, 3> names = {"no", "emulated", "native"};
};

/// How a fact about an instruction is known, from weak to strong: by memory (unverified), by documentation, by what the
/// assembler accepts, by the machine code it makes.
enum class Known { memory, documentation, assembler, machine_code };

template <>
struct EnumNames<Known> {
  static constexpr std::array<std::string_view, 4> names = {"memory", "documentation", "assembler", "machine_code"};
};

struct ArchFeature {
  Support support = Support::no;
  std::string targets;  ///< which targets of that capability have it: "any", "f/a", "a"; empty where none
  std::string note;
  Known known = Known::memory;
};
/// The probed fact; an Error where the capability or the feature is not in the table.
[[nodiscard]] Result<ArchFeature> arch_feature(std::string_view compute_capability, std::string_view feature);

}  // namespace moetune
