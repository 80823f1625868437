// Which candidate to look at next.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backend/evaluator.h"
#include "base/fields.h"

namespace moetune {

/// Everything that may be tried for one row: a space for each backend that can run it, and what is worth trying first.
struct SearchSpace {
  struct Part {
    std::string backend;
    Space space;
    Config first;  ///< its default; a candidate even where the space lacks it
  };
  std::vector<Part> parts;
  std::vector<Candidate> seeds;  ///< winners of neighbouring rows, most promising first; see nearest_candidate

  /// The part of that backend, or null.
  [[nodiscard]] const Part* find(std::string_view backend) const;
  [[nodiscard]] bool contains(const Candidate& candidate) const;
};

/// The candidate of `space` that resembles one of another row's space: each axis takes the value nearest in ratio, an
/// axis that the other space lacks takes the default's. Nothing where the backend is not in `space` or the constraints
/// between axes admit no such combination.
[[nodiscard]] std::optional<Candidate> nearest_candidate(const SearchSpace& space, const Candidate& candidate);

/// Three verbs: what next, what became of it, what was best. A strategy never proposes the same candidate twice, and
/// proposes every backend's default and then the seeds before anything else. The same seed and the same answers give
/// the same proposals.
class Strategy {
 public:
  explicit Strategy(SearchSpace space);
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// Nothing: the space is exhausted.
  [[nodiscard]] std::optional<Candidate> next();
  /// The cost (any positive number, smaller is better), or nothing where it failed. Also of candidates that were not
  /// proposed, which then are not any more. A cost that is not a positive finite number is a failure.
  void tell(const Candidate& candidate, std::optional<double> cost);
  [[nodiscard]] const std::optional<std::pair<Candidate, double>>& best() const { return best_; }

 protected:
  [[nodiscard]] bool seen(const Candidate& candidate) const;
  [[nodiscard]] const SearchSpace& space() const { return space_; }

 private:
  /// The next candidate that was not seen; nothing: there is none.
  [[nodiscard]] virtual std::optional<Candidate> propose() = 0;
  virtual void learn(const Candidate& /*candidate*/, std::optional<double> /*cost*/) {}

  SearchSpace space_;
  std::deque<Candidate> first_;
  std::unordered_set<std::string> seen_;
  std::optional<std::pair<Candidate, double>> best_;
};

enum class StrategyKind { local, random, exhaustive };
template <>
struct EnumNames<StrategyKind> {
  static constexpr std::array<std::string_view, 3> names = {"local", "random", "exhaustive"};
};

/// exhaustive: every candidate in the order of the space.  random: the same, shuffled.  local: tune/local_search.h.
[[nodiscard]] std::unique_ptr<Strategy> make_strategy(StrategyKind kind, SearchSpace space, std::uint64_t seed);

}  // namespace moetune
