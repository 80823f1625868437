// Any bytes as a safetensors file and as an index of shards: an answer, and one that keeps its promises.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "model/checkpoint.h"
#include "model/safetensors.h"

namespace moetune {
namespace {

void require(bool promise) {
  if (!promise) __builtin_trap();
}

void fuzz_file(std::span<const std::byte> file) {
  const auto header = parse_safetensors(file);
  if (!header) {
    require(!header.error().what.empty() && header.error().what.find('\n') == std::string::npos);
    return;
  }
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : header->tensors) {
    require(tensor.begin <= tensor.end && header->data_start + tensor.end <= file.size());
    bytes += tensor.end - tensor.begin;
    for (const std::int64_t size : tensor.shape) require(size >= 0);
  }
  require(header->data_start + bytes == file.size());
}

void fuzz_index(std::string_view text) {
  const auto index = parse_shard_index(text);
  if (!index) return;
  for (const auto& file : index->files) require(file.find('/') == std::string::npos);
  for (const auto& [tensor, file] : index->file_of) require(file < index->files.size());
}

}  // namespace
}  // namespace moetune

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  moetune::fuzz_file({bytes, size});
  moetune::fuzz_index({reinterpret_cast<const char*>(data), size});
  return 0;
}
