// Which candidate to try next.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/config.h"
#include "backend/evaluator.h"
#include "base/fields.h"

namespace moetune {

/// Everything that may be tried for one row: a space for each backend that can run it, and what is worth trying first.
struct SearchSpace {
  struct Part {
    std::string backend;
    Space space;
    Config first;  ///< its default
  };
  std::vector<Part> parts;
  std::vector<Candidate> seeds;  ///< winners of neighbouring rows; those not in the space are ignored

  [[nodiscard]] bool contains(const Candidate& candidate) const;
};

/// Three verbs: what next, what became of it, what was best. A strategy never proposes the same candidate twice, and
/// proposes every backend's default before anything else. The same seed and the same answers give the same proposals.
class Strategy {
 public:
  explicit Strategy(SearchSpace space);
  virtual ~Strategy() = default;

  /// Nothing: the space is exhausted.
  [[nodiscard]] std::optional<Candidate> next();
  /// The cost (any positive number, smaller is better), or nothing where it failed. Also of candidates that were not
  /// proposed.
  void tell(const Candidate& candidate, std::optional<double> cost);
  [[nodiscard]] const std::optional<std::pair<Candidate, double>>& best() const { return best_; }

 protected:
  /// The next candidate that was not seen; nothing: there is none.
  [[nodiscard]] virtual std::optional<Candidate> propose() = 0;
  virtual void learn(const Candidate& /*candidate*/, std::optional<double> /*cost*/) {}

  [[nodiscard]] bool seen(const Candidate& candidate) const;
  [[nodiscard]] const SearchSpace& space() const { return space_; }
  [[nodiscard]] const SearchSpace::Part& part(const std::string& backend) const;

 private:
  SearchSpace space_;
  std::deque<Candidate> first_;
  std::set<std::string> seen_;
  std::optional<std::pair<Candidate, double>> best_;
};

enum class StrategyKind { local, random, exhaustive };
template <>
struct EnumNames<StrategyKind> {
  static constexpr std::array<std::string_view, 3> names = {"local", "random", "exhaustive"};
};
[[nodiscard]] std::unique_ptr<Strategy> make_strategy(StrategyKind kind, SearchSpace space, std::uint64_t seed);

}  // namespace moetune
