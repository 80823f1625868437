// Iterated local search over several backends' spaces at once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tune/strategy.h"
#include "tune/urn.h"

namespace moetune {

/// What single values were worth so far, in one backend's space: the mean of log(cost) of the candidates that had them,
/// and whether they ever worked.
class ValueRecord {
 public:
  void add(const Config& config, std::optional<double> cost);
  /// Expected log(cost) less the mean of all, if axes acted independently. Values never tried count as average.
  [[nodiscard]] double expected(const Config& config) const;
  [[nodiscard]] int evaluated() const { return all_.fine + all_.failed; }
  /// Whether it has a value that failed at least kFailures times and never worked.
  [[nodiscard]] bool looks_broken(const Config& config) const;

 private:
  static constexpr int kFailures = 2;
  struct Tally {
    int fine = 0, failed = 0;
    double sum = 0;  ///< of log(cost)
  };
  std::map<std::pair<std::string, std::int64_t>, Tally> tallies_;
  Tally all_;
};

/// Each backend has a centre, the best it has seen since the last jump. A proposal is either a draw from the whole
/// space (kExploration of them, so that a landscape with several valleys is not judged by the first one) or a step of
/// one axis from a centre to the next value; the first step that is better becomes the centre. Where no step is left,
/// it jumps from the backend's best: a few axes at once, farther after each jump that gained nothing; where several
/// gained nothing, every other descent starts from a draw instead. Backends get turns by how near their best is to the
/// best of all, the little-known ones with an allowance. Steps, jumps and draws that the ValueRecord expects to be good
/// come first; values that only ever failed are left for last.
class LocalSearch final : public Strategy {
 public:
  static constexpr double kExploration = 0.2;

  LocalSearch(SearchSpace space, std::uint64_t seed);

 private:
  /// The search in one backend's space.
  struct Walk {
    explicit Walk(const SearchSpace::Part* the_part) : part(the_part), urn(the_part->space) {}
    const SearchSpace::Part* part;
    Urn urn;
    ValueRecord record;
    std::vector<Config> drawn;  ///< out of the urn and passed over
    std::optional<std::pair<Config, double>> centre, best;
    std::vector<Config> steps;  ///< from the centre; the next one last
    int idle_jumps = 0;         ///< since the best was found
  };

  [[nodiscard]] std::optional<Candidate> propose() override;
  void learn(const Candidate& candidate, std::optional<double> cost) override;

  [[nodiscard]] Walk* choose_walk();
  [[nodiscard]] std::optional<Candidate> explore();
  [[nodiscard]] std::optional<Config> draw(Walk& walk);
  [[nodiscard]] std::optional<Config> step(Walk& walk);
  [[nodiscard]] std::optional<Config> jump(Walk& walk);
  /// The best with a few axes moved, perhaps seen or not admitted.
  [[nodiscard]] Config away_from_best(const Walk& walk);
  void move_centre(Walk& walk, const Config& config, double cost);
  [[nodiscard]] bool fresh(const Walk& walk, const Config& config) const;

  std::mt19937_64 random_;
  std::vector<Walk> walks_;
};

}  // namespace moetune
