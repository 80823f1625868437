#include "model/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "model/json_events.h"

namespace moetune {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kMostTensors = 1 << 20;
constexpr std::size_t kHighestRank = 16;
constexpr int kHeaderDepth = 3;  // file, tensor, shape

/// Reads {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, …, "__metadata__": {"key": "text"}}.
class HeaderVisitor : public JsonVisitor {
 public:
  explicit HeaderVisitor(SafetensorsHeader& header) : header_(header) {}

  Status begin(int depth, bool object) override {
    if (depth == 1 && object) return {};
    if (depth == 2 && object) {
      entry_ = {};
      have_dtype_ = have_shape_ = have_offsets_ = false;
      return {};
    }
    if (depth == 3 && !object && !metadata_ && (field_ == "shape" || field_ == "data_offsets")) {
      bool& have = field_ == "shape" ? have_shape_ : have_offsets_;
      if (have) return fail_here("has two of it");
      have = true;
      numbers_.clear();
      return {};
    }
    return fail_here(object ? "is an object" : "is a list");
  }

  Status key(int depth, std::string_view key) override {
    if (depth == 1) {
      name_ = key;
      metadata_ = name_ == "__metadata__";
      field_.clear();
    } else {
      field_ = key;
      if (!metadata_ && field_ != "dtype" && field_ != "shape" && field_ != "data_offsets")
        return fail_here("is not a field of a tensor");
    }
    return {};
  }

  Status value(int depth, const JsonScalar& value) override {
    if (metadata_) {
      if (depth == 2 && std::holds_alternative<std::string_view>(value)) return {};
      return fail_here("is not text");
    }
    if (depth == 2 && field_ == "dtype") return read_dtype(value);
    if (depth < 3) return fail_here("is not what belongs there");
    const auto* number = std::get_if<std::uint64_t>(&value);
    if (number == nullptr || *number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return fail_here("holds something else than integers from 0 to 2^63 - 1");
    if (numbers_.size() == kHighestRank) return fail_here(fmt::format("has more than {} numbers", kHighestRank));
    numbers_.push_back(static_cast<std::int64_t>(*number));
    return {};
  }

  Status end(int depth) override {
    if (depth == 3) return end_numbers();
    if (depth == 2 && !metadata_) return end_tensor();
    return {};
  }

 private:
  /// "model.x.weight: shape has two of it", whatever of that is known.
  [[nodiscard]] tl::unexpected<Error> fail_here(std::string_view what) const {
    if (name_.empty() && field_.empty()) return fail(fmt::format("the header {}", what));
    return fail(fmt::format("{}: {} {}", printable(name_), field_.empty() ? "the entry" : printable(field_), what));
  }

  Status read_dtype(const JsonScalar& value) {
    const auto* name = std::get_if<std::string_view>(&value);
    if (have_dtype_) return fail_here("has two of it");
    if (name == nullptr) return fail_here("is not text");
    const auto dtype = parse_enum<Dtype>(*name);
    if (!dtype)
      return fail_here(fmt::format("{} is none of {}", printable(*name), fmt::join(EnumNames<Dtype>::names, " ")));
    entry_.dtype = *dtype;
    have_dtype_ = true;
    return {};
  }

  Status end_numbers() {
    if (field_ == "shape") {
      entry_.shape = numbers_;
      return {};
    }
    if (numbers_.size() != 2) return fail_here(fmt::format("has {} numbers, not 2", numbers_.size()));
    entry_.begin = static_cast<std::uint64_t>(numbers_[0]);
    entry_.end = static_cast<std::uint64_t>(numbers_[1]);
    return {};
  }

  Status end_tensor() {
    field_.clear();
    if (!have_dtype_ || !have_shape_ || !have_offsets_) return fail_here("lacks dtype, shape or data_offsets");
    if (header_.tensors.size() == kMostTensors) return fail(fmt::format("more than {} tensors", kMostTensors));
    if (!header_.tensors.emplace(name_, std::move(entry_)).second) return fail_here("comes twice");
    return {};
  }

  SafetensorsHeader& header_;
  std::string name_, field_;
  bool metadata_ = false, have_dtype_ = false, have_shape_ = false, have_offsets_ = false;
  TensorEntry entry_;
  std::vector<std::int64_t> numbers_;
};

/// Bytes that dtype and shape ask for; nothing where the product overflows or does not end on a byte.
std::optional<std::uint64_t> wanted_bytes(const TensorEntry& entry) {
  std::uint64_t product = static_cast<std::uint64_t>(bits(entry.dtype));
  // A zero anywhere makes the tensor empty, whatever the others multiply to.
  if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end()) return 0;
  for (const std::int64_t size : entry.shape)
    if (__builtin_mul_overflow(product, static_cast<std::uint64_t>(size), &product)) return std::nullopt;
  if (product % 8 != 0) return std::nullopt;
  return product / 8;
}

Status check_entry(const std::string& name, const TensorEntry& entry, std::uint64_t data_bytes) {
  const auto bad = [&](const std::string& what, std::vector<std::string> hints = {}) {
    return fail(fmt::format("{}: {}", printable(name), what), std::move(hints));
  };
  if (entry.begin > entry.end)
    return bad(fmt::format("data_offsets [{}, {}] end before they begin", entry.begin, entry.end));
  const auto wanted = wanted_bytes(entry);
  if (!wanted)
    return bad(fmt::format("{} [{}] is not a whole number of bytes that 64 bits can count", to_string(entry.dtype),
                           fmt::join(entry.shape, ", ")));
  if (*wanted != entry.end - entry.begin)
    return bad(fmt::format("{} [{}] is {} bytes, but data_offsets [{}, {}] hold {}", to_string(entry.dtype),
                           fmt::join(entry.shape, ", "), *wanted, entry.begin, entry.end, entry.end - entry.begin));
  if (entry.end > data_bytes)
    return bad(fmt::format("data_offsets end at byte {} of {}", entry.end, data_bytes),
               {"the file is cut short: download it again"});
  return {};
}

/// Every byte after the header belongs to exactly one tensor.
Status check_coverage(const SafetensorsHeader& header, std::uint64_t data_bytes) {
  std::vector<std::pair<const std::string*, const TensorEntry*>> order;
  order.reserve(header.tensors.size());
  for (const auto& [name, entry] : header.tensors) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  std::uint64_t covered = 0;
  for (const auto& [name, entry] : order) {
    if (entry->begin != covered)
      return fail(fmt::format(
          "{}: data_offsets [{}, {}] {} byte {}", printable(*name), entry->begin, entry->end,
          entry->begin < covered ? "overlap another tensor, which ends at" : "leave a hole, the tensor before ends at",
          covered));
    covered = entry->end;
  }
  if (covered != data_bytes)
    return fail(fmt::format("{} bytes follow the last tensor", data_bytes - covered), {"the file is not intact"});
  return {};
}

}  // namespace

int bits(Dtype dtype) {
  switch (dtype) {
    case Dtype::f4:
      return 4;
    case Dtype::f6_e2m3:
    case Dtype::f6_e3m2:
      return 6;
    case Dtype::boolean:
    case Dtype::u8:
    case Dtype::i8:
    case Dtype::f8_e5m2:
    case Dtype::f8_e4m3:
    case Dtype::f8_e8m0:
    case Dtype::f8_e4m3fnuz:
    case Dtype::f8_e5m2fnuz:
      return 8;
    case Dtype::i16:
    case Dtype::u16:
    case Dtype::f16:
    case Dtype::bf16:
      return 16;
    case Dtype::i32:
    case Dtype::u32:
    case Dtype::f32:
      return 32;
    case Dtype::c64:
    case Dtype::f64:
    case Dtype::i64:
    case Dtype::u64:
      return 64;
  }
  return 8;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes)
    return fail(fmt::format("a file of {} bytes, too short for safetensors' header length", file.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kLongestHeader)
    return fail(fmt::format("a header of {} bytes exceeds the limit of {}", length, kLongestHeader),
                {"this is not a safetensors file"});
  if (length > file.size() - kLengthBytes)
    return fail(fmt::format("a header of {} bytes does not fit a file of {}", length, file.size()),
                {"the file is cut short: download it again"});
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              static_cast<std::size_t>(length));
  if (!text.starts_with('{')) return fail("the header does not start with {", {"this is not a safetensors file"});
  SafetensorsHeader header{kLengthBytes + length, {}};
  HeaderVisitor visitor(header);
  if (auto status = visit_json(text, kHeaderDepth, visitor); !status) return fail_in("header", status.error());
  const std::uint64_t data_bytes = file.size() - header.data_start;
  for (const auto& [name, entry] : header.tensors) MOETUNE_CHECK(check_entry(name, entry, data_bytes));
  MOETUNE_CHECK(check_coverage(header, data_bytes));
  return header;
}

}  // namespace moetune
