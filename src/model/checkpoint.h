// The tensors of a Hugging Face folder, whether one file holds them or many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "model/safetensors.h"

namespace moetune {

/// A tensor in a mapped file. Its bytes are valid as long as the Checkpoint lives, and are read from disk when touched.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Which file holds which tensor.
struct ShardIndex {
  std::vector<std::string> files;                           ///< in order of appearance
  std::map<std::string, std::size_t, std::less<>> file_of;  ///< by tensor name, a place in `files`
};

/// Reads the text of a model.safetensors.index.json: {"weight_map": {"tensor": "file", …}}; its other keys are passed
/// over. Errors: not such an object, a tensor that comes twice, a file name that is not a plain *.safetensors name.
[[nodiscard]] Result<ShardIndex> parse_shard_index(std::string_view text);

/// Not for several threads at once: finding a tensor may map a file.
class Checkpoint {
 public:
  /// Reads the names: from model.safetensors.index.json (or the folder's only *.safetensors.index.json), else from
  /// model.safetensors, else from every *.safetensors. Errors: no such file, an index that is not one, a file name in
  /// it that is not a plain name inside the folder, two files with the same tensor.
  [[nodiscard]] static Result<Checkpoint> open(const std::string& folder);

  [[nodiscard]] bool has(std::string_view name) const { return shard_of_.contains(name); }

  /// The tensor; nothing where the checkpoint does not name it. Maps the file that should hold it at the first call for
  /// it. Errors: the file is absent, is not safetensors, or does not hold a tensor that the index says it does.
  [[nodiscard]] Result<std::optional<TensorView>> find(std::string_view name);

  [[nodiscard]] std::vector<std::string_view> names() const;  ///< sorted
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  struct Shard {
    std::string path;
    std::optional<MappedFile> file;
    SafetensorsHeader header;
  };

  Status read_index(const std::string& path);
  Status read_files(const std::vector<std::string>& names);
  [[nodiscard]] static Status map(Shard& shard);

  std::string folder_;
  std::vector<Shard> shards_;
  std::map<std::string, std::size_t, std::less<>> shard_of_;  ///< by tensor name
};

}  // namespace moetune
