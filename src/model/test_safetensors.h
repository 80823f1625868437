// For tests: writes safetensors files, right and wrong ones, without the code under test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moetune {

/// Eight bytes of header length, then the header, then the data.
inline std::string safetensors_text(const std::string& header, const std::string& data) {
  std::string text;
  for (unsigned byte = 0; byte < 8; ++byte)
    text += static_cast<char>(static_cast<unsigned char>(std::uint64_t{header.size()} >> (8 * byte)));
  return text + header + data;
}

class TestSafetensors {
 public:
  void add(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape,
           const std::string& bytes) {
    std::string list;
    for (const std::int64_t size : shape) list += (list.empty() ? "" : ",") + std::to_string(size);
    header_ += (header_.empty() ? "" : ",") + ("\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + list) +
               "],\"data_offsets\":[" + std::to_string(data_.size()) + "," +
               std::to_string(data_.size() + bytes.size()) + "]}";
    data_ += bytes;
  }
  [[nodiscard]] std::string text() const { return safetensors_text("{" + header_ + "}", data_); }

 private:
  std::string header_, data_;
};

}  // namespace moetune
