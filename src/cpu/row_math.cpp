#include "cpu/row_math.h"

// AVX3_DL adds nothing that these use.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/row_math.cpp"
#include <hwy/foreach_target.h>

#include <hwy/contrib/math/math-inl.h>

#include <limits>

#include "cpu/simd_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moetune {
namespace HWY_NAMESPACE {
namespace {

template <class D>
using V = hn::Vec<D>;

/// 1 / (1 + e^-x). Below -88 it is 0 but for 10^-38.
template <class D>
HWY_INLINE V<D> sigmoid(D d, V<D> x) {
  const V<D> one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0F)))));
}

/// erf by Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: within 1.5·10^-7.
template <class D>
HWY_INLINE V<D> erf(D d, V<D> x) {
  const V<D> a = hn::Abs(x);
  const V<D> t = hn::Div(hn::Set(d, 1.0F), hn::MulAdd(a, hn::Set(d, 0.3275911F), hn::Set(d, 1.0F)));
  V<D> polynomial = hn::MulAdd(t, hn::Set(d, 1.061405429F), hn::Set(d, -1.453152027F));
  polynomial = hn::MulAdd(polynomial, t, hn::Set(d, 1.421413741F));
  polynomial = hn::MulAdd(polynomial, t, hn::Set(d, -0.284496736F));
  polynomial = hn::MulAdd(polynomial, t, hn::Set(d, 0.254829592F));
  const V<D> tail = hn::Mul(hn::Mul(polynomial, t), hn::Exp(d, hn::Neg(hn::Mul(a, a))));
  return hn::CopySign(hn::Sub(hn::Set(d, 1.0F), tail), x);
}

/// The functions between the projections; each object holds its constants.
struct Silu {
  explicit Silu(const Activation&) {}
  template <class D>
  HWY_INLINE V<D> gate(D d, V<D> g) const {
    return hn::Mul(g, sigmoid(d, g));
  }
  template <class D>
  HWY_INLINE V<D> up(D, V<D> u) const {
    return u;
  }
};

struct Gelu : Silu {
  using Silu::Silu;
  template <class D>
  HWY_INLINE V<D> gate(D d, V<D> g) const {
    const V<D> e = erf(d, hn::Mul(g, hn::Set(d, 0.70710678F)));
    return hn::Mul(hn::Mul(hn::Set(d, 0.5F), g), hn::Add(hn::Set(d, 1.0F), e));
  }
};

/// (1 + tanh y) / 2 = sigmoid(2 y).
struct GeluTanh : Silu {
  using Silu::Silu;
  template <class D>
  HWY_INLINE V<D> gate(D d, V<D> g) const {
    constexpr float kTwiceRootTwoOverPi = 1.59576912F;
    const V<D> inner = hn::MulAdd(hn::Mul(hn::Mul(g, g), g), hn::Set(d, 0.044715F), g);
    return hn::Mul(g, sigmoid(d, hn::Mul(inner, hn::Set(d, kTwiceRootTwoOverPi))));
  }
};

struct Relu2 : Silu {
  using Silu::Silu;
  template <class D>
  HWY_INLINE V<D> gate(D d, V<D> g) const {
    const V<D> positive = hn::Max(g, hn::Zero(d));
    return hn::Mul(positive, positive);
  }
};

struct SiluClamped {
  explicit SiluClamped(const Activation& activation) : limit(static_cast<float>(activation.limit)) {}
  template <class D>
  HWY_INLINE V<D> gate(D d, V<D> g) const {
    const V<D> clamped = hn::Min(g, hn::Set(d, limit));
    return hn::Mul(clamped, sigmoid(d, clamped));
  }
  template <class D>
  HWY_INLINE V<D> up(D d, V<D> u) const {
    return hn::Clamp(u, hn::Set(d, -limit), hn::Set(d, limit));
  }
  float limit;
};

struct SwigluOai : SiluClamped {
  explicit SwigluOai(const Activation& activation)
      : SiluClamped(activation), alpha(static_cast<float>(activation.alpha)) {}
  template <class D>
  HWY_INLINE V<D> gate(D d, V<D> g) const {
    const V<D> clamped = hn::Min(g, hn::Set(d, limit));
    return hn::Mul(clamped, sigmoid(d, hn::Mul(clamped, hn::Set(d, alpha))));
  }
  template <class D>
  HWY_INLINE V<D> up(D d, V<D> u) const {
    return hn::Add(SiluClamped::up(d, u), hn::Set(d, 1.0F));
  }
  float alpha;
};

/// factor · x[i] + bias[i].
template <class D>
HWY_INLINE V<D> biased(D d, const float* x, const float* bias, float factor, std::int64_t i) {
  const V<D> product = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
  return bias != nullptr ? hn::Add(product, hn::LoadU(d, bias + i)) : product;
}

template <class D, class Function>
HWY_INLINE void activate_at(D d, const Function& function, const ProjectedRow& row, std::int64_t i, float* out) {
  const V<D> up = biased(d, row.up, row.up_bias, row.factor, i);
  V<D> result = function.gate(d, up);
  if (row.gate != nullptr)
    result = hn::Mul(function.gate(d, biased(d, row.gate, row.gate_bias, row.factor, i)), function.up(d, up));
  hn::StoreU(result, d, out + i);
}

template <class Function>
void activate_with(const Activation& activation, const ProjectedRow& row, std::int64_t count, float* out) {
  const FloatTag d;
  const hn::CappedTag<float, 1> one;
  const Function function(activation);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) activate_at(d, function, row, i, out);
  for (; i < count; ++i) activate_at(one, function, row, i, out);
}

void activate_row(const Activation& activation, const ProjectedRow& row, std::int64_t count, float* out) {
  switch (activation.kind) {
    case ActivationKind::silu:
      return activate_with<Silu>(activation, row, count, out);
    case ActivationKind::gelu:
      return activate_with<Gelu>(activation, row, count, out);
    case ActivationKind::gelu_tanh:
      return activate_with<GeluTanh>(activation, row, count, out);
    case ActivationKind::relu2:
      return activate_with<Relu2>(activation, row, count, out);
    case ActivationKind::silu_clamped:
      return activate_with<SiluClamped>(activation, row, count, out);
    case ActivationKind::swiglu_oai:
      return activate_with<SwigluOai>(activation, row, count, out);
    case ActivationKind::situ:
      break;
  }
  for (std::int64_t i = 0; i < count; ++i) out[i] = std::numeric_limits<float>::quiet_NaN();
}

template <class D>
HWY_INLINE void accumulate_at(D d, const float* x, const float* bias, float weight, std::int64_t i, float* sum) {
  V<D> value = hn::LoadU(d, x + i);
  if (bias != nullptr) value = hn::Add(value, hn::LoadU(d, bias + i));
  hn::StoreU(hn::MulAdd(value, hn::Set(d, weight), hn::LoadU(d, sum + i)), d, sum + i);
}

void accumulate_row(const float* x, const float* bias, float weight, std::int64_t count, float* sum) {
  const FloatTag d;
  const hn::CappedTag<float, 1> one;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) accumulate_at(d, x, bias, weight, i, sum);
  for (; i < count; ++i) accumulate_at(one, x, bias, weight, i, sum);
}

template <class D>
HWY_INLINE void from_bf16_at(D d, const std::uint16_t* x, float* out) {
  const hn::Rebind<std::uint16_t, D> halves;
  const hn::Rebind<std::uint32_t, D> words;
  hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, x)))), d, out);
}

void from_bf16_row(const std::uint16_t* x, std::int64_t count, float* out) {
  const FloatTag d;
  const hn::CappedTag<float, 1> one;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) from_bf16_at(d, x + i, out + i);
  for (; i < count; ++i) from_bf16_at(one, x + i, out + i);
}

template <class D>
HWY_INLINE void to_bf16_at(D d, const float* x, std::uint16_t* out) {
  const hn::Rebind<std::uint16_t, D> halves;
  const hn::Rebind<std::uint32_t, D> words;
  const hn::Rebind<std::int32_t, D> signed_words;
  const V<D> value = hn::LoadU(d, x);
  const auto bits = hn::BitCast(words, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1U));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fffU))));
  // A NaN would round to infinity or zero.
  const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(words, 0x40U));
  const auto result = hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(value)), nan, rounded);
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(signed_words, result)), halves, out);
}

void to_bf16_row(const float* x, std::int64_t count, std::uint16_t* out) {
  const FloatTag d;
  const hn::CappedTag<float, 1> one;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) to_bf16_at(d, x + i, out + i);
  for (; i < count; ++i) to_bf16_at(one, x + i, out + i);
}

}  // namespace

RowMath pick_row_math() { return {activate_row, accumulate_row, from_bf16_row, to_bf16_row}; }

}  // namespace HWY_NAMESPACE
}  // namespace moetune
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetune {
HWY_EXPORT(pick_row_math);

RowMath row_math() { return HWY_DYNAMIC_DISPATCH(pick_row_math)(); }

}  // namespace moetune
#endif
