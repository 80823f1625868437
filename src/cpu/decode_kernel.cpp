#include "cpu/tile_kernel.h"

namespace moetune {

TileKernel decode_kernel(const WeightSpec& spec, std::int64_t k, const DecodeShape& shape) {
  TileKernel kernel;
  switch (spec.format) {
    case WeightFormat::bf16:
    case WeightFormat::fp16:
      break;
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
    case WeightFormat::fp8_block:
    case WeightFormat::mxfp8:
      kernel = fp8_decode_kernel(spec, k, shape);
      break;
    case WeightFormat::nvfp4:
    case WeightFormat::mxfp4:
    case WeightFormat::int4:
      kernel = nibble_decode_kernel(spec, k, shape);
      break;
  }
  return kernel.run != nullptr ? kernel : half_decode_kernel(spec, k, shape);
}

}  // namespace moetune
