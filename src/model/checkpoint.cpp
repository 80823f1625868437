#include "model/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "model/json_events.h"
#include "model/layer.h"

namespace moetune {
namespace {

constexpr std::size_t kLongestIndex = 100'000'000;
constexpr std::size_t kMostShards = 4096;
constexpr std::size_t kMostFolderEntries = 65536;
constexpr int kIndexDepth = 8;  // metadata may hold anything; two levels matter
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

class IndexVisitor : public JsonVisitor {
 public:
  ShardIndex index;
  bool found = false;  ///< a weight_map, that is

  Status begin(int depth, bool object) override {
    if (depth == 1 && !object) return fail("a list, not an object with a weight_map");
    if (depth == 2 && in_map_) {
      if (!object) return fail("weight_map is a list, not an object");
      found = true;
    }
    if (depth == 3 && in_map_) return fail(fmt::format("{}: its file is not text", printable(tensor_)));
    return {};
  }

  Status end(int) override { return {}; }

  Status key(int depth, std::string_view key) override {
    if (depth == 1) {
      in_map_ = key == "weight_map";
      if (in_map_ && found) return fail("two weight_maps");
    }
    if (depth == 2 && in_map_) tensor_ = key;
    return {};
  }

  Status value(int depth, const JsonScalar& value) override {
    if (!in_map_) return {};
    const auto* file = std::get_if<std::string_view>(&value);
    if (depth != 2) return fail("weight_map is not an object");
    if (file == nullptr) return fail(fmt::format("{}: its file is not text", printable(tensor_)));
    MOETUNE_TRY(const std::size_t number, file_number(*file));
    if (!index.file_of.emplace(tensor_, number).second) return fail(fmt::format("{} comes twice", printable(tensor_)));
    return {};
  }

 private:
  /// Only files of the folder itself: an index from elsewhere must not make us open anything else.
  Result<std::size_t> file_number(std::string_view file) {
    if (const auto known = numbers_.find(file); known != numbers_.end()) return known->second;
    if (file.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos || !file.ends_with(kSuffix))
      return fail(fmt::format("{}: its file {} is not the name of a .safetensors file in this folder",
                              printable(tensor_), printable(file)));
    if (index.files.size() == kMostShards) return fail(fmt::format("more than {} files", kMostShards));
    numbers_.emplace(file, index.files.size());
    index.files.emplace_back(file);
    return index.files.size() - 1;
  }

  bool in_map_ = false;
  std::string tensor_;
  std::map<std::string, std::size_t, std::less<>> numbers_;
};

/// Names in the folder that end with `suffix`, sorted.
std::vector<std::string> files_with(const std::string& folder, std::string_view suffix) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (std::size_t seen = 0; !error && entry != std::filesystem::directory_iterator() && seen < kMostFolderEntries;
       entry.increment(error), ++seen)
    if (std::string name = entry->path().filename().string(); name.ends_with(suffix)) names.push_back(std::move(name));
  std::sort(names.begin(), names.end());
  return names;
}

/// model.safetensors or its index by preference, since other files may hold the same weights once more.
std::vector<std::string> preferred(std::vector<std::string> names, std::string_view suffix) {
  const std::string usual = "model" + std::string(suffix);
  if (std::find(names.begin(), names.end(), usual) != names.end()) return {usual};
  return names;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  const auto indices = preferred(files_with(folder, kIndexSuffix), kIndexSuffix);
  const auto files = preferred(files_with(folder, kSuffix), kSuffix);
  if (indices.size() == 1) {
    MOETUNE_CHECK(checkpoint.read_index(folder + "/" + indices.front()));
  } else if (!files.empty() && files.size() <= kMostShards) {
    MOETUNE_CHECK(checkpoint.read_files(files));
  } else {
    return fail(fmt::format("{}: no safetensors files in this folder", folder));
  }
  return checkpoint;
}

Result<ShardIndex> parse_shard_index(std::string_view text) {
  IndexVisitor visitor;
  MOETUNE_CHECK(visit_json(text, kIndexDepth, visitor));
  if (!visitor.found) return fail("no weight_map in it");
  return std::move(visitor.index);
}

Status Checkpoint::read_index(const std::string& path) {
  MOETUNE_TRY(const std::string text, read_file(path, kLongestIndex));
  auto index = parse_shard_index(text);
  if (!index) return fail_in(path, std::move(index).error());
  for (const std::string& file : index->files) shards_.push_back({folder_ + "/" + file, std::nullopt, {}});
  shard_of_ = std::move(index->file_of);
  return {};
}

Status Checkpoint::read_files(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    Shard shard{folder_ + "/" + name, std::nullopt, {}};
    MOETUNE_CHECK(map(shard));
    for (const auto& [tensor, entry] : shard.header.tensors)
      if (const auto [other, fresh] = shard_of_.emplace(tensor, shards_.size()); !fresh)
        return fail(fmt::format("{}: {} is in {} too", shard.path, printable(tensor), shards_[other->second].path),
                    {"leave one copy of the weights in the folder, or add a model.safetensors.index.json"});
    shards_.push_back(std::move(shard));
  }
  return {};
}

Status Checkpoint::map(Shard& shard) {
  MOETUNE_TRY(MappedFile file, MappedFile::open(shard.path));
  auto header = parse_safetensors(file.bytes());
  if (!header) return fail_in(shard.path, std::move(header).error());
  shard.header = *std::move(header);
  shard.file = std::move(file);
  return {};
}

Result<std::optional<TensorView>> Checkpoint::find(std::string_view name) {
  const auto known = shard_of_.find(name);
  if (known == shard_of_.end()) return std::nullopt;
  Shard& shard = shards_[known->second];
  if (!shard.file) MOETUNE_CHECK(map(shard));
  const auto found = shard.header.tensors.find(name);
  if (found == shard.header.tensors.end())
    return fail(fmt::format("{}: {} is not in it, although the index says so", shard.path, printable(name)),
                {"index and files are not of the same version: download both again"});
  const TensorEntry& entry = found->second;
  const auto bytes = shard.file->bytes().subspan(static_cast<std::size_t>(shard.header.data_start + entry.begin),
                                                 static_cast<std::size_t>(entry.end - entry.begin));
  return TensorView{found->first, entry.dtype, entry.shape, bytes};
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  names.reserve(shard_of_.size());
  for (const auto& [name, shard] : shard_of_) names.emplace_back(name);
  return names;
}

bool has_weights(const std::string& folder) {
  return !files_with(folder, kSuffix).empty() || !files_with(folder, kIndexSuffix).empty();
}

}  // namespace moetune
