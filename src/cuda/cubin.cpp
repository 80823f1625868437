#include "cuda/cubin.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>

namespace moetune::cuda {
namespace {

constexpr std::uint16_t kMachineCuda = 190;
constexpr unsigned char kEntryBit = 0x10;
constexpr std::int64_t kReservedSharedBytes = 1024;
constexpr std::size_t kMaxSections = 100'000;

enum InfoFormat : unsigned char { kInfoSized = 4 };
enum InfoAttribute : unsigned char {
  kInfoMaxThreads = 0x05,
  kInfoFrameSize = 0x11,
  kInfoMinStackSize = 0x12,
  kInfoParameterBytes = 0x19,
  kInfoRegisters = 0x2f
};

tl::unexpected<Error> broken(std::string_view what) { return fail(fmt::format("not a readable cubin: {}", what)); }

template <class T>
bool read_at(std::string_view bytes, std::uint64_t offset, T& value) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return true;
}

/// The text up to the next zero byte; empty outside the table.
std::string_view text_at(std::string_view table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const auto rest = table.substr(offset);
  return rest.substr(0, rest.find('\0'));
}

struct Section {
  std::string_view name;
  Elf64_Shdr header{};
  std::string_view bytes;  ///< empty for sections that take no space in the file
};

Result<std::vector<Section>> read_sections(std::string_view file) {
  Elf64_Ehdr header{};
  if (!read_at(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return broken(fmt::format("{} bytes without an ELF header", file.size()));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachineCuda)
    return broken(fmt::format("an ELF file for machine {}, not {}", header.e_machine, kMachineCuda));
  // More sections than 16 bits count are counted in the first one's size.
  Elf64_Shdr first{};
  if (!read_at(file, header.e_shoff, first)) return broken("its section table lies outside the file");
  const std::uint64_t count = header.e_shnum != 0 ? header.e_shnum : first.sh_size;
  const std::uint64_t names = header.e_shstrndx != SHN_XINDEX ? header.e_shstrndx : first.sh_link;
  if (count > kMaxSections || names >= count)
    return broken(fmt::format("{} sections, names in section {}", count, names));

  std::vector<Section> sections(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    auto& section = sections[i];
    if (!read_at(file, header.e_shoff + i * sizeof(Elf64_Shdr), section.header))
      return broken(fmt::format("section {} of {} lies outside the file", i, count));
    if (section.header.sh_type == SHT_NOBITS || section.header.sh_type == SHT_NULL) continue;
    const auto [offset, size] = std::pair(section.header.sh_offset, section.header.sh_size);
    if (offset > file.size() || size > file.size() - offset)
      return broken(fmt::format("section {}: {} bytes at {} of {}", i, size, offset, file.size()));
    section.bytes = file.substr(offset, size);
  }
  for (auto& section : sections) section.name = text_at(sections[names].bytes, section.header.sh_name);
  return sections;
}

/// Calls visit(attribute, format, value, payload) for each attribute of an info section; whether the section is whole.
template <class Visit>
bool each_info(std::string_view bytes, Visit&& visit) {
  while (!bytes.empty()) {
    unsigned char format = 0, attribute = 0;
    std::uint16_t value = 0;
    if (!read_at(bytes, 0, format) || !read_at(bytes, 1, attribute) || !read_at(bytes, 2, value)) return false;
    bytes.remove_prefix(4);
    std::string_view payload;
    if (format == kInfoSized) {
      if (value > bytes.size()) return false;
      payload = bytes.substr(0, value);
      bytes.remove_prefix(value);
    }
    visit(attribute, value, payload);
  }
  return true;
}

std::int64_t bounded(std::uint64_t value) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::int64_t>::max()));
}

using Kernels = std::map<std::uint32_t, KernelResources>;  // by index of its symbol

Result<Kernels> read_kernels(const std::vector<Section>& sections) {
  Kernels kernels;
  for (const auto& section : sections) {
    if (section.header.sh_type != SHT_SYMTAB) continue;
    if (section.header.sh_link >= sections.size()) return broken("its symbol table has no names");
    const auto names = sections[section.header.sh_link].bytes;
    Elf64_Sym symbol{};
    for (std::uint32_t i = 0; read_at(section.bytes, std::uint64_t{i} * sizeof symbol, symbol); ++i) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || (symbol.st_other & kEntryBit) == 0) continue;
      kernels[i].name = text_at(names, symbol.st_name);
    }
  }
  return kernels;
}

/// Registers and stack of all kernels, from `.nv.info`.
bool read_common_info(std::string_view bytes, Kernels& kernels) {
  return each_info(bytes, [&kernels](unsigned char attribute, std::uint16_t, std::string_view payload) {
    std::uint32_t symbol = 0, number = 0;
    if (!read_at(payload, 0, symbol) || !read_at(payload, 4, number)) return;
    const auto kernel = kernels.find(symbol);
    if (kernel == kernels.end()) return;
    if (attribute == kInfoRegisters) kernel->second.registers = number;
    if (attribute == kInfoFrameSize || attribute == kInfoMinStackSize)
      kernel->second.stack_bytes = std::max<std::int64_t>(kernel->second.stack_bytes, number);
  });
}

/// Bounds and parameters of one kernel, from `.nv.info.NAME`.
bool read_own_info(std::string_view bytes, KernelResources& kernel) {
  return each_info(bytes, [&kernel](unsigned char attribute, std::uint16_t value, std::string_view payload) {
    if (attribute == kInfoParameterBytes) kernel.parameter_bytes = value;
    std::uint32_t x = 0, y = 0, z = 0;
    if (attribute == kInfoMaxThreads && read_at(payload, 0, x) && read_at(payload, 4, y) && read_at(payload, 8, z))
      // The product of three 32-bit numbers of a damaged file may not fit.
      kernel.max_threads = bounded(std::min<std::uint64_t>(std::uint64_t{x} * y, 1U << 31) * z);
  });
}

Status read_details(const std::vector<Section>& sections, Kernels& kernels) {
  std::map<std::string, const Section*, std::less<>> by_name;
  for (const auto& section : sections) by_name.emplace(section.name, &section);
  const auto find = [&by_name](const std::string& name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  };
  if (const auto* info = find(".nv.info"); info != nullptr && !read_common_info(info->bytes, kernels))
    return broken("its attributes are cut short");
  const std::int64_t reserved = find(".nv.shared.reserved.0") != nullptr ? kReservedSharedBytes : 0;
  for (auto& [index, kernel] : kernels) {
    if (find(".text." + kernel.name) == nullptr) return broken(fmt::format("kernel {} has no code", kernel.name));
    if (kernel.registers == 0)
      return broken(fmt::format("kernel {} does not say how many registers it takes", kernel.name));
    if (const auto* own = find(".nv.info." + kernel.name); own != nullptr && !read_own_info(own->bytes, kernel))
      return broken(fmt::format("the attributes of kernel {} are cut short", kernel.name));
    if (const auto* shared = find(".nv.shared." + kernel.name); shared != nullptr)
      kernel.static_shared_bytes = std::max<std::int64_t>(0, bounded(shared->header.sh_size) - reserved);
  }
  return {};
}

/// "… 396 bytes spill stores": the number before the words.
std::optional<std::int64_t> number_before(std::string_view line, std::string_view words) {
  const auto at = line.find(words);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const auto start = line.find_last_not_of("0123456789", at - 1);
  const auto digits = line.substr(start + 1, at - start - 1);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

}  // namespace

Result<std::vector<KernelResources>> read_cubin(std::string_view cubin) {
  MOETUNE_TRY(const auto sections, read_sections(cubin));
  MOETUNE_TRY(auto kernels, read_kernels(sections));
  MOETUNE_CHECK(read_details(sections, kernels));
  if (kernels.empty()) return broken("it has no kernel");
  std::vector<KernelResources> list;
  list.reserve(kernels.size());
  for (auto& [index, kernel] : kernels) list.push_back(std::move(kernel));
  return list;
}

void read_spills(std::string_view log, std::vector<KernelResources>& kernels) {
  constexpr std::string_view kProperties = "Function properties for ";
  KernelResources* current = nullptr;
  while (!log.empty()) {
    const auto newline = log.find('\n');
    const auto line = log.substr(0, newline);
    log = newline == std::string_view::npos ? std::string_view{} : log.substr(newline + 1);
    if (const auto at = line.find(kProperties); at != std::string_view::npos) {
      const auto name = line.substr(at + kProperties.size());
      const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) { return k.name == name; });
      current = found == kernels.end() ? nullptr : &*found;
    } else if (current != nullptr) {
      if (const auto stores = number_before(line, " bytes spill stores")) current->spill_store_bytes = stores;
      if (const auto loads = number_before(line, " bytes spill loads")) current->spill_load_bytes = loads;
    }
  }
}

}  // namespace moetune::cuda
