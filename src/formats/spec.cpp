#include "formats/spec.h"

#include <fmt/format.h>

namespace moetune {

std::string describe(const WeightSpec& spec) {
  switch (spec.format) {
    case WeightFormat::fp8_block:
      return fmt::format("fp8_block [{},{}]", spec.block_n, spec.block_k);
    case WeightFormat::int4:
      return fmt::format("int4 group {}{}", spec.block_k, spec.zero_point ? " with zero points" : "");
    default:
      return std::string(to_string(spec.format));
  }
}

MatrixBytes matrix_bytes(const WeightSpec& spec, std::int64_t n, std::int64_t k) {
  switch (spec.format) {
    case WeightFormat::bf16:
    case WeightFormat::fp16:
      return {2 * n * k, 0, 0};
    case WeightFormat::fp8_tensor:
      return {n * k, 4, 0};
    case WeightFormat::fp8_channel:
      return {n * k, 4 * n, 0};
    case WeightFormat::fp8_block:
      return {n * k, 4 * ceil_div(n, spec.block_n) * ceil_div(k, spec.block_k), 0};
    case WeightFormat::mxfp8:
      return {n * k, n * ceil_div(k, spec.block_k), 0};
    case WeightFormat::nvfp4:
    case WeightFormat::mxfp4:
      return {n * k / 2, n * ceil_div(k, spec.block_k), 0};
    case WeightFormat::int4: {
      const std::int64_t groups = n * ceil_div(k, spec.block_k);
      return {n * k / 2, 4 * groups, spec.zero_point ? groups : 0};
    }
  }
  return {};
}

}  // namespace moetune
