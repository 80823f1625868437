#include "measure/floor.h"

#include <algorithm>

namespace moetune {

double read_us(const Ceilings& ceilings, double bytes) {
  const auto us = [](const Ceilings::Read& read) { return static_cast<double>(read.bytes) / (read.gb_s * 1e3); };
  const auto& reads = ceilings.reads;
  if (reads.empty()) return ceilings.read_gb_s > 0 ? bytes / (ceilings.read_gb_s * 1e3) : 0;
  const auto above = std::find_if(reads.begin(), reads.end(),
                                  [&](const auto& read) { return static_cast<double>(read.bytes) >= bytes; });
  if (above == reads.begin()) return bytes / (above->gb_s * 1e3);
  if (above == reads.end()) return bytes / (reads.back().gb_s * 1e3);
  const auto below = above - 1;
  const double span = static_cast<double>(above->bytes - below->bytes);
  const double part = (bytes - static_cast<double>(below->bytes)) / span;
  return us(*below) + part * (us(*above) - us(*below));
}

Floor floor_of(const Ceilings& ceilings, double bytes, double flops) {
  const double memory = read_us(ceilings, bytes);
  const double compute = ceilings.bf16_tflops > 0 ? flops / (ceilings.bf16_tflops * 1e6) : 0;
  return compute > memory ? Floor{compute, Bound::compute} : Floor{memory, Bound::memory};
}

}  // namespace moetune
