#include "arch/facts.h"

#include <algorithm>

#include "arch/arch_data.h"
#include "arch/facts_check.h"
#include "arch/toml_reader.h"

namespace moetune {
namespace {

constexpr std::int64_t kFormatVersion = 1;

struct ArchsFile {
  std::int64_t version = 0;
  std::chrono::year_month_day date{};
  std::vector<Arch> arch;
  std::vector<Feature> feature;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("version", self.version);
    visit("date", self.date);
    visit("arch", self.arch);
    visit("feature", self.feature);
  }
};

struct GpusFile {
  std::int64_t version = 0;
  std::vector<Gpu> gpu;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("version", self.version);
    visit("gpu", self.gpu);
  }
};

template <class File>
Result<File> read_data_file(const EmbeddedFile& file) {
  const TomlReader reader(file.name);
  File content;
  MOETUNE_CHECK(reader.read_document(file.text, content));
  if (content.version != kFormatVersion)
    return fail(fmt::format("{}: format version {} is not {}", file.name, content.version, kFormatVersion));
  return content;
}

Result<EmbeddedFile> embedded_file(std::string_view name) {
  for (const auto& file : arch_data())
    if (file.name == name) return file;
  return fail(fmt::format("{} is not embedded in this binary", name));
}

Result<Facts> read_facts() {
  MOETUNE_TRY(const EmbeddedFile archs, embedded_file("data/archs.toml"));
  MOETUNE_TRY(const EmbeddedFile gpus, embedded_file("data/gpus.toml"));
  return parse_facts(archs, gpus);
}

}  // namespace

const FeatureRow* Feature::row(std::string_view compute_capability) const {
  for (const auto& row : on)
    if (std::find(row.capabilities.begin(), row.capabilities.end(), compute_capability) != row.capabilities.end())
      return &row;
  return nullptr;
}

const Arch* Facts::arch(std::string_view compute_capability) const {
  const auto found = std::find_if(archs.begin(), archs.end(),
                                  [&](const Arch& arch) { return arch.compute_capability == compute_capability; });
  return found == archs.end() ? nullptr : &*found;
}

const Feature* Facts::feature(std::string_view name) const {
  const auto found =
      std::find_if(features.begin(), features.end(), [&](const Feature& feature) { return feature.name == name; });
  return found == features.end() ? nullptr : &*found;
}

Result<Facts> parse_facts(const EmbeddedFile& archs, const EmbeddedFile& gpus) {
  MOETUNE_TRY(auto archs_file, read_data_file<ArchsFile>(archs));
  MOETUNE_TRY(auto gpus_file, read_data_file<GpusFile>(gpus));
  Facts facts;
  facts.archs_date = archs_file.date;
  facts.archs = std::move(archs_file.arch);
  facts.features = std::move(archs_file.feature);
  facts.gpus = std::move(gpus_file.gpu);
  MOETUNE_CHECK(check_archs(TomlReader(archs.name), facts));
  MOETUNE_CHECK(check_features(TomlReader(archs.name), facts));
  MOETUNE_CHECK(check_gpus(TomlReader(gpus.name), facts));
  MOETUNE_CHECK(index_names(TomlReader(gpus.name), facts));
  return facts;
}

const Result<Facts>& facts() {
  static const Result<Facts> read = read_facts();
  return read;
}

}  // namespace moetune
