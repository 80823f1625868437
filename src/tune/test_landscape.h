// Recorded rows that nobody measured: cost functions with the traits of real kernels, for tests of the search.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "tune/recording.h"
#include "tune/urn.h"

namespace moetune::test {

/// A row over two backends with optima in different corners. Axes interact: work is cut into pieces that must fill the
/// threads, a tile that exceeds the registers spills, prefetching helps up to a distance that depends on the tile, one
/// value fails always and one corner fails by combination. On top each candidate has its own fixed deviation of up to
/// ± 3 %, as layouts and alignments give. `seed` moves every optimum; `tokens` scales the backends against each other.
struct Landscape {
  std::uint64_t seed = 1;
  std::int64_t tokens = 1;
  std::vector<std::int64_t> threads = {1, 2, 3, 4, 6, 8};

  [[nodiscard]] RecordedRow row() const {
    RecordedRow row;
    row.workload.tokens = tokens;
    row.exhaustive = true;
    row.parts = {decode(), prefill()};
    return row;
  }

 private:
  /// In [0, 1), fixed for a place and this landscape.
  [[nodiscard]] double chance(std::string_view place) const {
    std::uint64_t hash = seed * 0x9E3779B97F4A7C15U;
    for (const char c : place) hash = (hash ^ static_cast<std::uint64_t>(c)) * 0x100000001B3U;
    std::mt19937_64 random(hash);
    return uniform(random);
  }
  [[nodiscard]] double between(std::string_view place, double low, double high) const {
    return low + (high - low) * chance(place);
  }
  static double log2_distance(std::int64_t a, double b) { return std::log2(static_cast<double>(a) / b); }

  void fill(RecordedPart& part, const std::function<double(const Config&)>& cost) const {
    Space space;
    for (const auto& axis : part.axes) space.axes.push_back({axis.name, axis.values, ""});
    for (const auto& config : space.all()) {
      RecordedOutcome outcome;
      for (const auto& value : config.values) outcome.config.push_back(value.second);
      const double us = cost(config);
      outcome.status = us > 0 ? OutcomeStatus::ok : OutcomeStatus::crashed;
      if (us > 0) outcome.us_median = us * between(part.backend + describe(config), 0.97, 1.03);
      if (us < 0) outcome.us_median = 0;
      part.outcomes.push_back(outcome);
    }
  }

  [[nodiscard]] double scaling(std::int64_t threads_used, double bandwidth_threads) const {
    return 1 / std::min(static_cast<double>(threads_used), bandwidth_threads) +
           0.01 * static_cast<double>(threads_used);
  }

  [[nodiscard]] RecordedPart decode() const {
    RecordedPart part{"test:decode",
                      {{"threads", threads},
                       {"rows", {8, 16, 32, 64, 128}},
                       {"token_block", {1, 2, 4, 8}},
                       {"prefetch", {0, 512, 1024, 2048, 4096}}},
                      {threads.back(), 32, 4, 1024},
                      {}};
    const double saturation = between("saturation", 2, 7);
    const double best_rows = between("rows", 10, 100);
    const double best_prefetch = between("prefetch", 600, 3500);
    fill(part, [&](const Config& c) {
      const auto rows = c.get("rows"), block = c.get("token_block"), used = c.get("threads");
      if (rows == 128 && block == 8) return -1.0;
      const double pieces = 4096.0 / static_cast<double>(rows * used);
      const double imbalance = std::ceil(pieces) / pieces;
      const double tile = 1 + 0.06 * std::pow(log2_distance(rows * (block > 2 ? 1 : 2), best_rows), 2);
      const double spill = 1 + 0.25 * std::max(0.0, log2_distance(rows * block, 256));
      const double reuse =
          1 + 0.4 * std::max(0.0, log2_distance(std::min<std::int64_t>(tokens, 8), static_cast<double>(block)));
      const auto ahead = c.get("prefetch");
      const double fetch = ahead == 0 ? 1.25 : 1 + 0.05 * std::abs(log2_distance(ahead * rows / 32, best_prefetch));
      return 1000.0 * scaling(used, saturation) * imbalance * tile * spill * reuse * fetch;
    });
    return part;
  }

  [[nodiscard]] RecordedPart prefill() const {
    RecordedPart part{"test:prefill",
                      {{"threads", threads},
                       {"rows", {12, 24, 48, 96}},
                       {"k_chunk", {128, 256, 512, 1024}},
                       {"unroll", {1, 2, 4, 8}}},
                      {threads.back(), 24, 256, 2},
                      {}};
    const double cache = between("cache", 8'000, 60'000);
    const double factor = between("prefill", 0.7, 1.6);
    fill(part, [&](const Config& c) {
      const auto rows = c.get("rows"), chunk = c.get("k_chunk"), unroll = c.get("unroll");
      if (unroll == 8) return -1.0;
      const double fit = 1 + 0.2 * std::abs(log2_distance(rows * chunk, cache));
      const double spill = 1 + 0.3 * std::max(0.0, log2_distance(rows * unroll, 100));
      const double loop = 1 + 0.15 / static_cast<double>(unroll);
      return 1000.0 * factor * scaling(c.get("threads"), 8) * fit * spill * loop;
    });
    return part;
  }
};

}  // namespace moetune::test
