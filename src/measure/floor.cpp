#include "measure/floor.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace moetune {
namespace {

/// Microseconds that `bytes` take at `gb_s` GB/s: 1 GB/s is 1000 bytes a microsecond.
double us_at(double bytes, double gb_s) { return bytes / (gb_s * 1e3); }

}  // namespace

double read_us(const Ceilings& ceilings, double bytes) {
  std::vector<Ceilings::Read> reads;
  std::copy_if(ceilings.reads.begin(), ceilings.reads.end(), std::back_inserter(reads),
               [](const auto& read) { return read.bytes > 0 && read.gb_s > 0; });
  if (reads.empty()) return ceilings.read_gb_s > 0 ? us_at(bytes, ceilings.read_gb_s) : 0;
  const auto above = std::find_if(reads.begin(), reads.end(),
                                  [&](const auto& read) { return static_cast<double>(read.bytes) >= bytes; });
  if (above == reads.begin()) return us_at(bytes, above->gb_s);
  if (above == reads.end()) return us_at(bytes, reads.back().gb_s);
  const auto below = above - 1;
  const auto low = static_cast<double>(below->bytes), high = static_cast<double>(above->bytes);
  const double low_us = us_at(low, below->gb_s), high_us = us_at(high, above->gb_s);
  return low_us + (bytes - low) / (high - low) * (high_us - low_us);
}

Floor floor_of(const Ceilings& ceilings, double bytes, double flops) {
  const double memory = read_us(ceilings, bytes);
  const double compute = ceilings.bf16_tflops > 0 ? flops / (ceilings.bf16_tflops * 1e6) : 0;
  return compute > memory ? Floor{compute, Bound::compute} : Floor{memory, Bound::memory};
}

}  // namespace moetune
