// What is on file about GPUs: products (data/gpus.toml) and compute capabilities (data/archs.toml). Nothing here is
// guessed: what is not known is absent.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/target.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/fields.h"

namespace moetune {

/// How far a product's row can be relied on.
enum class Confidence { low, medium, high };

template <>
struct EnumNames<Confidence> {
  static constexpr std::array<std::string_view, 3> names = {"low", "medium", "high"};
};

/// A string for the compiler's -arch, and the oldest CUDA release that has it.
struct CompileTarget {
  std::string name;     ///< "sm_120a"
  std::string toolkit;  ///< "12.8"

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("name", self.name);
    visit("toolkit", self.toolkit);
  }
};

/// Dense tensor arithmetic of one multiprocessor in one clock: operations, a multiply-add counting two. fp32
/// accumulators, int32 for int8.
struct TensorRate {
  std::optional<std::string> products;  ///< which products of the capability; absent: all
  std::optional<double> fp16, bf16, fp8, fp4, int8;
  std::optional<std::string> note;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("products", self.products);
    visit("fp16", self.fp16);
    visit("bf16", self.bf16);
    visit("fp8", self.fp8);
    visit("fp4", self.fp4);
    visit("int8", self.int8);
    visit("note", self.note);
  }
};

/// A compute capability.
struct Arch {
  std::int64_t line = 0;           ///< in data/archs.toml
  std::string compute_capability;  ///< "12.0"
  std::string generation;          ///< "Blackwell"; several capabilities share one
  std::optional<std::int64_t> smem_per_sm_bytes;
  std::optional<std::int64_t> smem_per_block_bytes;  ///< what a kernel can opt in to; 48 KiB otherwise
  std::optional<std::int64_t> smem_reserved_per_block_bytes;
  std::vector<std::int64_t> smem_carveouts_kib;
  std::optional<std::int64_t> warps_per_sm, blocks_per_sm, registers_per_sm, registers_per_thread;
  std::optional<std::int64_t> tensor_memory_per_sm_bytes;
  std::optional<std::int64_t> cluster_blocks_portable, cluster_blocks_max;
  std::string oldest_toolkit;
  std::optional<std::string> last_toolkit;   ///< absent: still supported by the newest
  std::optional<std::string> oldest_driver;  ///< Linux driver that came with the oldest toolkit
  std::vector<CompileTarget> targets;        ///< generic first; older spellings of the same chip last
  std::vector<TensorRate> tensor_rate;
  std::vector<std::string> unverified;  ///< keys whose value is from memory
  std::optional<std::string> note;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("compute_capability", self.compute_capability);
    visit("generation", self.generation);
    visit("smem_per_sm_bytes", self.smem_per_sm_bytes);
    visit("smem_per_block_bytes", self.smem_per_block_bytes);
    visit("smem_reserved_per_block_bytes", self.smem_reserved_per_block_bytes);
    visit("smem_carveouts_kib", self.smem_carveouts_kib);
    visit("warps_per_sm", self.warps_per_sm);
    visit("blocks_per_sm", self.blocks_per_sm);
    visit("registers_per_sm", self.registers_per_sm);
    visit("registers_per_thread", self.registers_per_thread);
    visit("tensor_memory_per_sm_bytes", self.tensor_memory_per_sm_bytes);
    visit("cluster_blocks_portable", self.cluster_blocks_portable);
    visit("cluster_blocks_max", self.cluster_blocks_max);
    visit("oldest_toolkit", self.oldest_toolkit);
    visit("last_toolkit", self.last_toolkit);
    visit("oldest_driver", self.oldest_driver);
    visit("targets", self.targets);
    visit("tensor_rate", self.tensor_rate);
    visit("unverified", self.unverified);
    visit("note", self.note);
  }
};

/// One answer about a feature, for the capabilities that share it.
struct FeatureRow {
  std::int64_t line = 0;
  std::vector<std::string> capabilities;
  Support support = Support::no;
  std::optional<std::string> targets;  ///< "any", "f/a", "a"; absent where support is no
  Known known = Known::memory;
  std::optional<std::string> note;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("capabilities", self.capabilities);
    visit("support", self.support);
    visit("targets", self.targets);
    visit("known", self.known);
    visit("note", self.note);
  }
};

/// An instruction family.
struct Feature {
  std::int64_t line = 0;
  std::string name;  ///< "mma_fp8"
  std::string what;  ///< the instructions it stands for
  std::vector<FeatureRow> on;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("name", self.name);
    visit("what", self.what);
    visit("on", self.on);
  }

  /// The row that covers the capability; null where none does.
  [[nodiscard]] const FeatureRow* row(std::string_view compute_capability) const;
};

/// Dense matrix products as others measured them.
struct MeasuredRates {
  std::optional<double> bf16_tflops, fp8_tflops, nvfp4_tflops, int8_tops;
  std::optional<std::string> note;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("bf16_tflops", self.bf16_tflops);
    visit("fp8_tflops", self.fp8_tflops);
    visit("nvfp4_tflops", self.nvfp4_tflops);
    visit("int8_tops", self.int8_tops);
    visit("note", self.note);
  }
};

/// A product.
struct Gpu {
  std::int64_t line = 0;                ///< in data/gpus.toml
  std::string name;                     ///< as NVML reports it
  std::vector<std::string> aliases;     ///< other names of exactly this product
  std::vector<std::string> family;      ///< marketing names that cover several products
  std::vector<std::string> default_of;  ///< those of them that mean this one when nothing more is said
  std::string compute_capability;
  std::optional<std::int64_t> multiprocessors;
  std::optional<double> memory_gb;         ///< as sold
  std::optional<std::int64_t> memory_mib;  ///< as the driver reports it
  std::optional<double> memory_gb_s;
  std::optional<std::int64_t> l2_mib;
  std::optional<std::int64_t> smem_per_sm_bytes, smem_per_block_bytes;
  std::optional<double> tdp_w, boost_mhz;
  std::optional<double> fp16_tflops, bf16_tflops, fp8_tflops, fp4_tflops, int8_tops;
  std::optional<std::string> interconnect;
  std::optional<MeasuredRates> measured;
  std::string source;
  Confidence confidence = Confidence::low;
  std::chrono::year_month_day date{};
  std::vector<std::string> unverified;  ///< keys whose value is from memory
  std::optional<std::string> note;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("name", self.name);
    visit("aliases", self.aliases);
    visit("family", self.family);
    visit("default_of", self.default_of);
    visit("compute_capability", self.compute_capability);
    visit("multiprocessors", self.multiprocessors);
    visit("memory_gb", self.memory_gb);
    visit("memory_mib", self.memory_mib);
    visit("memory_gb_s", self.memory_gb_s);
    visit("l2_mib", self.l2_mib);
    visit("smem_per_sm_bytes", self.smem_per_sm_bytes);
    visit("smem_per_block_bytes", self.smem_per_block_bytes);
    visit("tdp_w", self.tdp_w);
    visit("boost_mhz", self.boost_mhz);
    visit("fp16_tflops", self.fp16_tflops);
    visit("bf16_tflops", self.bf16_tflops);
    visit("fp8_tflops", self.fp8_tflops);
    visit("fp4_tflops", self.fp4_tflops);
    visit("int8_tops", self.int8_tops);
    visit("interconnect", self.interconnect);
    visit("measured", self.measured);
    visit("source", self.source);
    visit("confidence", self.confidence);
    visit("date", self.date);
    visit("unverified", self.unverified);
    visit("note", self.note);
  }
};

/// Both files, checked. Names are keyed as name_key (arch/names.h) makes them.
struct Facts {
  /// A marketing name that covers several products: their places in `gpus`, and the one it means by itself.
  struct Family {
    std::string name;
    std::vector<std::size_t> gpus;
    std::optional<std::size_t> meant;
  };

  std::chrono::year_month_day archs_date{};  ///< when the capabilities were last gone through
  std::vector<Arch> archs;
  std::vector<Feature> features;
  std::vector<Gpu> gpus;
  std::map<std::string, std::size_t> products;  ///< key of a name or alias to its place in `gpus`
  std::map<std::string, Family> families;

  [[nodiscard]] const Arch* arch(std::string_view compute_capability) const;
  [[nodiscard]] const Feature* feature(std::string_view name) const;
};

/// Reads and checks both files: known keys and types, unique names, every capability in every feature, every product's
/// capability on file. Errors say file, line and field.
[[nodiscard]] Result<Facts> parse_facts(const EmbeddedFile& archs, const EmbeddedFile& gpus);

/// The facts this binary carries, read at the first call.
[[nodiscard]] const Result<Facts>& facts();

}  // namespace moetune
