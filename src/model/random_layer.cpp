// Random weights. Every part of a stack (its data, its scales, …) is a stream of 64-bit words that fill it in order,
// little-endian, the last one cut where the part ends:
//
//   word i = map(splitmix64(key, i))        splitmix64(key, i): output number i of SplitMix64 started at `key`
//   key    = splitmix64(seed, 8 · stack + part)   stack: gate 0, up 1, down 2; part: see Part
//
// A word depends on nothing but its place, so that threads and pieces do not matter, and costs two multiplications. The
// maps, one for each element format, are below.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "base/parallel.h"
#include "formats/convert.h"
#include "model/layer.h"

namespace moetune {
namespace {

static_assert(std::endian::native == std::endian::little, "words are written as they lie in memory");

enum class Part : std::uint64_t { data, scales, zeros, global_scale, bias };

/// Output number `index` (from 0) of SplitMix64 (Steele, Lea, Flood 2014) started at `key`.
constexpr std::uint64_t splitmix64(std::uint64_t key, std::uint64_t index) {
  std::uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// ------------------------------------------------------------------------------------------------------------ the maps

/// A nearly normal distribution in 4096 values, exactly symmetric, standard deviation 1. Value i < 2048 is the sum of
/// the four 16-bit fields of splitmix64(0, i), about its mean; value i + 2048 is its negative. (Sums of integers and
/// one square root, which IEEE rounds the same everywhere; a normal quantile would need a library's logarithm.)
std::array<float, 4096> normal_table() {
  constexpr std::size_t kHalf = 2048;
  std::array<std::int64_t, kHalf> sums{};
  std::int64_t square = 0;
  for (std::size_t i = 0; i < kHalf; ++i) {
    const std::uint64_t word = splitmix64(0, i);
    for (unsigned field = 0; field < 4; ++field) sums[i] += static_cast<std::int64_t>((word >> (16 * field)) & 0xffffU);
    sums[i] -= 2 * 0xffff;
    square += sums[i] * sums[i];
  }
  const double deviation = std::sqrt(static_cast<double>(square) / static_cast<double>(kHalf));
  std::array<float, 2 * kHalf> table{};
  for (std::size_t i = 0; i < kHalf; ++i) {
    table[i] = static_cast<float>(static_cast<double>(sums[i]) / deviation);
    table[i + kHalf] = -table[i];
  }
  return table;
}

/// bf16, fp16: four elements from the upper 12 bits of each 16-bit field.
struct NormalMap {
  std::array<std::uint16_t, 4096> codes{};
  std::uint64_t operator()(std::uint64_t word) const {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 64; shift += 16)
      out |= static_cast<std::uint64_t>(codes[(word >> (shift + 4)) & 0xfffU]) << shift;
    return out;
  }
};

NormalMap normal_map(const std::array<float, 4096>& normal, WeightFormat format, double deviation) {
  NormalMap map;
  for (std::size_t i = 0; i < normal.size(); ++i) {
    const auto value = static_cast<float>(static_cast<double>(normal[i]) * deviation);
    map.codes[i] = format == WeightFormat::bf16 ? float_to_bf16(value) : float_to_fp16(value);
  }
  return map;
}

/// bias: two floats from the upper 12 bits of each 32-bit half.
struct BiasMap {
  std::array<float, 4096> values{};
  std::uint64_t operator()(std::uint64_t word) const {
    const auto at = [&](std::uint64_t index) { return std::uint64_t{std::bit_cast<std::uint32_t>(values[index])}; };
    return at((word >> 20) & 0xfffU) | at(word >> 52) << 32;
  }
};

/// Four-bit elements: every code is a number, so the bits are taken as they come.
constexpr auto kRawMap = [](std::uint64_t word) { return word; };

/// e4m3 elements: as the bits come, but ±NaN (0x7f) loses its 0x40 and is ±0x3f.
constexpr auto kE4m3Map = [](std::uint64_t word) {
  const std::uint64_t nan = ((word & 0x7f7f7f7f7f7f7f7fU) + 0x0101010101010101U) & 0x8080808080808080U;
  return word ^ (nan >> 1);
};

/// Bytes through a table: e4m3 and e8m0 scales, zero points.
struct ByteMap {
  std::array<std::uint8_t, 256> codes{};
  std::uint64_t operator()(std::uint64_t word) const {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 64; shift += 8)
      out |= static_cast<std::uint64_t>(codes[(word >> shift) & 0xffU]) << shift;
    return out;
  }
};

/// Float scales: two of `base` times 0.5 … 2, from the upper 23 bits (a factor of 1 … 2) and the lowest (halved or not)
/// of each 32-bit half.
struct ScaleMap {
  float base = 1.0F;
  std::uint64_t operator()(std::uint64_t word) const {
    const std::uint64_t low = scale(static_cast<std::uint32_t>(word));
    return low | std::uint64_t{scale(static_cast<std::uint32_t>(word >> 32))} << 32;
  }
  [[nodiscard]] std::uint32_t scale(std::uint32_t bits) const {
    const std::uint32_t exponent = (bits & 1U) != 0 ? 126U << 23 : 127U << 23;
    return std::bit_cast<std::uint32_t>(base * std::bit_cast<float>(exponent | bits >> 9));
  }
};

/// Root mean square of ScaleMap's factor: the mean square of 1 … 2 is 7/3, half of them have a quarter of it.
const double kFactorRms = std::sqrt(35.0 / 24.0);

ScaleMap scale_map(double rms) { return {static_cast<float>(rms / kFactorRms)}; }

/// NVFP4 group scales: 64 … 240 by sixteenths of the byte; four bytes of 256 give zero and subnormals instead.
ByteMap nvfp4_scale_map() {
  constexpr std::uint32_t k64 = 0x68;
  ByteMap map;
  for (std::uint32_t byte = 0; byte < 256; ++byte) map.codes[byte] = static_cast<std::uint8_t>(k64 + (byte & 0xfU));
  constexpr std::array<std::uint8_t, 4> kRare = {0x00, 0x01, 0x04, 0x07};
  std::copy(kRare.begin(), kRare.end(), map.codes.begin());
  return map;
}

/// E8M0 scales around `rms`: the power of two below, the same twice as often, the one above. Their mean square is
/// 1.25² that of the middle one.
ByteMap e8m0_map(double rms) {
  int exponent = 0;
  const double mantissa = std::frexp(rms / 1.25, &exponent);  // 0.5 … 1 times 2^exponent
  const int nearest = mantissa < std::sqrt(0.5) ? exponent - 1 : exponent;
  constexpr std::array<int, 4> kSteps = {-1, 0, 0, 1};
  ByteMap map;
  for (std::size_t byte = 0; byte < 256; ++byte)
    map.codes[byte] = static_cast<std::uint8_t>(127 + nearest + kSteps[byte % 4]);
  return map;
}

/// Zero points 4 … 11.
ByteMap zero_map() {
  ByteMap map;
  for (std::size_t byte = 0; byte < 256; ++byte) map.codes[byte] = static_cast<std::uint8_t>(4 + byte % 8);
  return map;
}

template <class Decode>
double code_rms(std::uint32_t codes, Decode decode) {
  double sum = 0.0;
  for (std::uint32_t code = 0; code < codes; ++code) sum += std::pow(static_cast<double>(decode(code)), 2);
  return std::sqrt(sum / codes);
}

double e4m3_rms() {
  return code_rms(256,
                  [](std::uint32_t code) { return e4m3_to_float(static_cast<std::uint8_t>(kE4m3Map(code) & 0xffU)); });
}

double e2m1_rms() {
  return code_rms(16, [](std::uint32_t code) { return kE2m1Values[code]; });
}

/// Of nibble - zero point, over every pair that comes up.
double int4_rms(bool zero_point) {
  if (!zero_point) return code_rms(16, [](std::uint32_t code) { return static_cast<double>(code) - 8.0; });
  return code_rms(128, [](std::uint32_t code) { return static_cast<double>(code % 16) - 4.0 - code / 16; });
}

// ---------------------------------------------------------------------------------------------------------- the
// filling

/// One part to fill: `make(first, out)` writes words first, first + 1, … into out.
struct Job {
  std::span<std::byte> to;
  std::function<void(std::uint64_t, std::span<std::byte>)> make;
};

template <class Map>
void make_words(const Map& map, std::uint64_t key, std::uint64_t first, std::span<std::byte> out) {
  const std::size_t words = out.size() / 8;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = map(splitmix64(key, first + i));
    std::memcpy(out.data() + 8 * i, &word, 8);
  }
  if (const std::size_t rest = out.size() % 8; rest != 0) {
    const std::uint64_t word = map(splitmix64(key, first + words));
    std::memcpy(out.data() + 8 * words, &word, rest);
  }
}

/// Piece by piece.
void run(const std::vector<Job>& jobs, unsigned threads) {
  constexpr std::size_t kPiece = std::size_t{2} << 20;  // a huge page: no two threads fault in the same one
  std::vector<std::pair<const Job*, std::size_t>> pieces;
  for (const Job& job : jobs)
    for (std::size_t start = 0; start < job.to.size(); start += kPiece) pieces.emplace_back(&job, start);
  const auto make = [&](std::int64_t i) {
    const auto [job, start] = pieces[static_cast<std::size_t>(i)];
    job->make(start / 8, job->to.subspan(start, std::min(kPiece, job->to.size() - start)));
  };
  parallel_for(static_cast<std::int64_t>(pieces.size()), make, threads);
}

/// Collects the jobs of one stack.
class StackFiller {
 public:
  StackFiller(ExpertStack& stack, std::uint64_t seed, std::uint64_t number, std::vector<Job>& jobs)
      : stack_(stack), seed_(seed), number_(number), jobs_(jobs) {}

  /// Elements times scales have a standard deviation of 1/√K.
  void weights(const std::array<float, 4096>& normal) {
    const double deviation = 1.0 / std::sqrt(static_cast<double>(stack_.k));
    const bool zero_point = stack_.spec.zero_point;
    switch (stack_.spec.format) {
      case WeightFormat::bf16:
      case WeightFormat::fp16:
        return add(Part::data, bytes_of(stack_.data), normal_map(normal, stack_.spec.format, deviation));
      case WeightFormat::fp8_tensor:
      case WeightFormat::fp8_channel:
      case WeightFormat::fp8_block:
        add(Part::data, bytes_of(stack_.data), kE4m3Map);
        return add(Part::scales, bytes_of(stack_.scales), scale_map(deviation / e4m3_rms()));
      case WeightFormat::mxfp8:
        add(Part::data, bytes_of(stack_.data), kE4m3Map);
        return add(Part::scales, bytes_of(stack_.scales), e8m0_map(deviation / e4m3_rms()));
      case WeightFormat::mxfp4:
        add(Part::data, bytes_of(stack_.data), kRawMap);
        return add(Part::scales, bytes_of(stack_.scales), e8m0_map(deviation / e2m1_rms()));
      case WeightFormat::nvfp4:
        return nvfp4(deviation);
      case WeightFormat::int4:
        add(Part::data, bytes_of(stack_.data), kRawMap);
        add(Part::scales, bytes_of(stack_.scales), scale_map(deviation / int4_rms(zero_point)));
        return add(Part::zeros, bytes_of(stack_.zeros), zero_map());
    }
  }

  /// Biases with a standard deviation of a quarter of a projection's.
  void bias(const std::array<float, 4096>& normal) {
    stack_.bias.resize(static_cast<std::size_t>(stack_.experts * stack_.n));
    BiasMap map{normal};
    for (float& value : map.values) value *= 0.25F;
    add(Part::bias, std::as_writable_bytes(std::span(stack_.bias)), map);
  }

 private:
  static std::span<std::byte> bytes_of(Buffer& buffer) {
    return {buffer.data(), static_cast<std::size_t>(buffer.size())};
  }

  void nvfp4(double deviation) {
    const ByteMap scales = nvfp4_scale_map();
    const double scale_rms = code_rms(256, [&](std::uint32_t byte) { return e4m3_to_float(scales.codes[byte]); });
    add(Part::data, bytes_of(stack_.data), kRawMap);
    add(Part::scales, bytes_of(stack_.scales), scales);
    add(Part::global_scale, std::as_writable_bytes(std::span(stack_.global_scale)),
        scale_map(deviation / e2m1_rms() / scale_rms));
  }

  template <class Map>
  void add(Part part, std::span<std::byte> to, const Map& map) {
    const std::uint64_t key = splitmix64(seed_, 8 * number_ + static_cast<std::uint64_t>(part));
    jobs_.push_back(
        {to, [map, key](std::uint64_t first, std::span<std::byte> out) { make_words(map, key, first, out); }});
  }

  ExpertStack& stack_;
  std::uint64_t seed_, number_;
  std::vector<Job>& jobs_;
};

}  // namespace

Result<Layer> random_layer(const Problem& problem, std::uint64_t seed, unsigned threads) {
  MOETUNE_TRY(Layer layer, allocate_layer(problem));
  const auto normal = normal_table();
  std::vector<Job> jobs;
  const std::array<ExpertStack*, 3> stacks = {&layer.gate, &layer.up, &layer.down};
  for (std::uint64_t number = 0; number < stacks.size(); ++number) {
    StackFiller fill(*stacks[number], seed, number, jobs);
    if (stacks[number]->experts == 0) continue;
    fill.weights(normal);
    if (problem.bias) fill.bias(normal);
  }
  run(jobs, threads);
  layer.origin = fmt::format("random weights, seed {}", seed);
  return layer;
}

}  // namespace moetune
