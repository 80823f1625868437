// The small vector vocabulary of the kernels, once per instruction set. Include <hwy/highway.h> through
// foreach_target.h first.
#if defined(MOETUNE_CPU_SIMD_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MOETUNE_CPU_SIMD_OPS_INL_H_
#undef MOETUNE_CPU_SIMD_OPS_INL_H_
#else
#define MOETUNE_CPU_SIMD_OPS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

/// Arrays of vectors stay in registers only if the loops over them disappear early.
#define MOETUNE_UNROLL _Pragma("GCC unroll 16")

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
inline constexpr std::int64_t kLanes = HWY_LANES(float);

constexpr std::int64_t kCacheLine = 64;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Memory is read again after this. Without it a compiler keeps what several rows share in registers until it runs out
/// of them, and saves sums to the stack instead.
HWY_INLINE void keep_order() { __asm__ __volatile__("" : : : "memory"); }

/// Asks for memory along one contiguous stretch, `ahead` bytes before it is read, and beyond its end along the next
/// one.
class Prefetcher {
 public:
  Prefetcher(const std::byte* begin, const std::byte* end, std::int64_t ahead, const std::byte* next_begin,
             std::int64_t next_bytes)
      : at_(begin + ahead), end_(end), next_begin_(next_begin), next_end_(next_begin + next_bytes), active_(ahead > 0) {
    if (active_ && at_ >= end_) turn();
  }

  static Prefetcher none() { return {nullptr, nullptr, 0, nullptr, 0}; }

  /// `bytes` more have been read.
  HWY_INLINE void advance(std::int64_t bytes) {
    if (!active_) return;
    for (std::int64_t line = 0; line < bytes; line += kCacheLine) hwy::Prefetch(at_ + line);
    at_ += bytes;
    if (at_ >= end_) turn();
  }

 private:
  void turn() {
    active_ = next_begin_ != next_end_;
    at_ = next_begin_ + (at_ - end_);
    end_ = next_end_;
    next_begin_ = next_end_;
  }

  const std::byte* at_;
  const std::byte* end_;
  const std::byte* next_begin_;
  const std::byte* next_end_;
  bool active_;
};

#if HWY_TARGET == HWY_AVX3_DL
/// sum[i] + a[2i] b[2i] + a[2i+1] b[2i+1] of bf16 pairs; needs has_bf16_dot(). By name, because no Highway target of
/// this version implies the instruction and a compiler flag for the whole file would let it be used unasked.
HWY_INLINE Floats dot_bf16_pairs(Floats sum, hn::Vec<hn::Repartition<std::uint32_t, FloatTag>> a,
                                 hn::Vec<hn::Repartition<std::uint32_t, FloatTag>> b) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}

/// Two vectors of floats to one of bf16, the first one's first, rounded to nearest even.
HWY_INLINE hn::Vec<hn::Repartition<std::uint32_t, FloatTag>> round_to_bf16(Floats first, Floats second) {
  hn::Vec<hn::Repartition<std::uint32_t, FloatTag>> both;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both.raw) : "v"(first.raw), "v"(second.raw));
  return both;
}

/// sum[i] + Σ of four products of unsigned and signed bytes, exact (AVX512_VNNI, which AVX3_DL implies).
HWY_INLINE hn::Vec<hn::Repartition<std::int32_t, FloatTag>> dot_bytes(
    hn::Vec<hn::Repartition<std::int32_t, FloatTag>> sum, hn::Vec<hn::Repartition<std::uint8_t, FloatTag>> a,
    hn::Vec<hn::Repartition<std::int8_t, FloatTag>> b) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
#endif

/// Σ lanes of each of `kCount` vectors.
template <std::size_t kCount>
HWY_INLINE void sum_lanes(const Floats (&v)[kCount], float (&sums)[kCount]) {
  const FloatTag d;
  std::size_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  // Four at a time: two rounds of interleaving leave one vector of the four sums per 128-bit block.
  const hn::RepartitionToWide<FloatTag> wide;
  const hn::FixedTag<float, 4> quad;
  MOETUNE_UNROLL
  for (; done + 4 <= kCount; done += 4) {
    const Floats ab =
        hn::Add(hn::InterleaveLower(d, v[done], v[done + 1]), hn::InterleaveUpper(d, v[done], v[done + 1]));
    const Floats cd =
        hn::Add(hn::InterleaveLower(d, v[done + 2], v[done + 3]), hn::InterleaveUpper(d, v[done + 2], v[done + 3]));
    const auto even = hn::InterleaveLower(wide, hn::BitCast(wide, ab), hn::BitCast(wide, cd));
    const auto odd = hn::InterleaveUpper(wide, hn::BitCast(wide, ab), hn::BitCast(wide, cd));
    const Floats blocks = hn::Add(hn::BitCast(d, even), hn::BitCast(d, odd));
#if HWY_CAP_GE512
    const hn::Half<FloatTag> half;
    const auto two = hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks));
    hn::StoreU(hn::Add(hn::LowerHalf(quad, two), hn::UpperHalf(quad, two)), quad, sums + done);
#elif HWY_CAP_GE256
    hn::StoreU(hn::Add(hn::LowerHalf(quad, blocks), hn::UpperHalf(quad, blocks)), quad, sums + done);
#else
    hn::StoreU(blocks, quad, sums + done);
#endif
  }
#endif
  for (; done < kCount; ++done) sums[done] = hn::GetLane(hn::SumOfLanes(d, v[done]));
}

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#endif
