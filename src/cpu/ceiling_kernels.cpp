#include "cpu/ceiling_kernels.h"

#include "cpu/instructions.h"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/ceiling_kernels.cpp"
#include <hwy/foreach_target.h>

#include "cpu/simd_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kPage = 4096;

using WordTag = hn::Repartition<std::uint32_t, FloatTag>;
using Words = hn::Vec<WordTag>;
constexpr std::int64_t kVectorBytes = 4 * kLanes;

Words load_words_at(const std::byte* data) {
  return hn::LoadU(WordTag(), reinterpret_cast<const std::uint32_t*>(data));
}

template <std::size_t kStreams>
std::uint64_t read_streams(const std::byte* data, std::int64_t bytes, std::int64_t ahead) {
  constexpr std::int64_t kCount = kStreams;
  constexpr std::int64_t kStep = 2 * kCacheLine;
  const std::int64_t part = bytes / kPage * kPage / kCount / kStep * kStep;
  Words sums[kStreams][2];
  MOETUNE_UNROLL
  for (std::size_t s = 0; s < kStreams; ++s) sums[s][0] = sums[s][1] = hn::Zero(WordTag());
  for (std::int64_t at = 0; at < part; at += kStep) {
    MOETUNE_UNROLL
    for (std::size_t s = 0; s < kStreams; ++s) {
      const std::byte* line = data + static_cast<std::int64_t>(s) * part + at;
      if (ahead > 0) {
        hwy::Prefetch(line + ahead);
        hwy::Prefetch(line + ahead + kCacheLine);
      }
      MOETUNE_UNROLL
      for (std::int64_t i = 0; i < kStep; i += 2 * kVectorBytes) {
        sums[s][0] = hn::Add(sums[s][0], load_words_at(line + i));
        sums[s][1] = hn::Add(sums[s][1], load_words_at(line + i + kVectorBytes));
      }
    }
  }
  Words all = hn::Zero(WordTag());
  for (auto& pair : sums) all = hn::Add(all, hn::Add(pair[0], pair[1]));
  return hn::GetLane(hn::SumOfLanes(WordTag(), all));
}

std::uint64_t read_bytes(const std::byte* data, std::int64_t bytes, std::int64_t streams, std::int64_t ahead) {
  if (streams >= 4) return read_streams<4>(data, bytes, ahead);
  if (streams >= 2) return read_streams<2>(data, bytes, ahead);
  return read_streams<1>(data, bytes, ahead);
}

void copy_bytes(const std::byte* from, std::byte* to, std::int64_t bytes, bool around_caches) {
  const std::int64_t all = bytes / kPage * kPage;
  auto* out = reinterpret_cast<std::uint32_t*>(to);
  for (std::int64_t at = 0; at < all; at += kCacheLine) {
    hwy::Prefetch(from + at + kPage / 4);
    MOETUNE_UNROLL
    for (std::int64_t i = at; i < at + kCacheLine; i += kVectorBytes) {
      if (around_caches)
        hn::Stream(load_words_at(from + i), WordTag(), out + i / 4);
      else
        hn::Store(load_words_at(from + i), WordTag(), out + i / 4);
    }
  }
  hwy::FlushStream();
}

/// As many as hide the latency of the slowest FMA known here (5 cycles, 2 a cycle) and fit 16 registers.
constexpr std::size_t kChains = 12;

double multiply_add(std::int64_t rounds) {
  const FloatTag d;
  Floats sums[kChains];
  MOETUNE_UNROLL
  for (std::size_t i = 0; i < kChains; ++i) sums[i] = hn::Set(d, static_cast<float>(i));
  const Floats half = hn::Set(d, 0.5F);  // keeps the sums finite: they go towards 1
  for (std::int64_t round = 0; round < rounds; ++round) {
    MOETUNE_UNROLL
    for (std::size_t i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], half, half);
  }
  Floats all = hn::Zero(d);
  for (auto& sum : sums) all = hn::Add(all, sum);
  const double done = 2.0 * static_cast<double>(rounds) * kChains * static_cast<double>(kLanes);
  // Always `done`, but the compiler cannot know that without computing the sums.
  return hn::GetLane(hn::SumOfLanes(d, all)) < 1e6F ? done : 0.0;
}

#if HWY_TARGET == HWY_AVX3_DL
double dot_bf16(std::int64_t rounds) {
  const FloatTag d;
  Floats sums[kChains];
  MOETUNE_UNROLL
  for (std::size_t i = 0; i < kChains; ++i) sums[i] = hn::Set(d, static_cast<float>(i));
  const auto zeros = hn::BitCast(WordTag(), hn::Zero(d));
  for (std::int64_t round = 0; round < rounds; ++round) {
    MOETUNE_UNROLL
    for (std::size_t i = 0; i < kChains; ++i) sums[i] = dot_bf16_pairs(sums[i], zeros, zeros);
  }
  Floats all = hn::Zero(d);
  for (auto& sum : sums) all = hn::Add(all, sum);
  const double done = 4.0 * static_cast<double>(rounds) * kChains * static_cast<double>(kLanes);
  return hn::GetLane(hn::SumOfLanes(d, all)) < 1e6F ? done : 0.0;
}
#endif

}  // namespace

CeilingKernels pick_ceiling_kernels() {
  CeilingKernels kernels{read_bytes, copy_bytes, multiply_add, nullptr};
#if HWY_TARGET == HWY_AVX3_DL
  if (has_bf16_dot()) kernels.dot_bf16 = dot_bf16;
#endif
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetune {
HWY_EXPORT(pick_ceiling_kernels);

CeilingKernels ceiling_kernels() { return HWY_DYNAMIC_DISPATCH(pick_ceiling_kernels)(); }

}  // namespace moetune
#endif
