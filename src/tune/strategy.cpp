#include "tune/strategy.h"

#include <algorithm>
#include <stdexcept>

#include "base/json.h"

namespace moetune {
namespace {

std::string key_of(const Candidate& candidate) { return candidate.backend + " " + describe(candidate.config); }

/// Uniform in 0 … count-1. The standard's distributions differ between libraries; this does not.
std::size_t pick(std::mt19937_64& random, std::size_t count) { return static_cast<std::size_t>(random() % count); }

/// Every candidate of the space, in order.
class Exhaustive : public Strategy {
 public:
  explicit Exhaustive(SearchSpace space) : Strategy(std::move(space)) {
    for (const auto& part : this->space().parts)
      for (auto& config : part.space.all()) left_.push_back({part.backend, std::move(config)});
  }

 protected:
  std::optional<Candidate> propose() override {
    while (!left_.empty()) {
      Candidate candidate = std::move(left_.front());
      left_.pop_front();
      if (!seen(candidate)) return candidate;
    }
    return std::nullopt;
  }

  std::deque<Candidate> left_;
};

/// The same in random order.
class Shuffled : public Exhaustive {
 public:
  Shuffled(SearchSpace space, std::uint64_t seed) : Exhaustive(std::move(space)) {
    std::mt19937_64 random(seed);
    for (std::size_t i = left_.size(); i > 1; --i) std::swap(left_[i - 1], left_[pick(random, i)]);
  }
};

/// Iterated local search: from the best known candidate it tries one step along one axis at a time and moves to
/// whatever is better; where no step helps it jumps away by changing a few axes at once and descends from there. One
/// proposal in five is drawn from the whole space, so that a landscape with several valleys is not judged by the first.
/// Values that only ever failed are proposed less.
class LocalSearch : public Strategy {
 public:
  LocalSearch(SearchSpace space, std::uint64_t seed)
      : Strategy(std::move(space)), random_(seed), everything_(this->space(), seed + 1) {}

 protected:
  std::optional<Candidate> propose() override {
    if (!centre_ || pick(random_, 5) == 0) return anything();
    constexpr int kKicks = 8;
    for (int kick = 0; kick < kKicks; ++kick) {
      if (auto step = next_step()) return step;
      // A local optimum: descend from somewhere near the best, once in a while from near another good one.
      Candidate away = kicked(best()->first);
      steps_.clear();
      centre_ = away;
      centre_cost_.reset();
      list_steps();
      if (!seen(away)) return away;
    }
    return anything();
  }

  void learn(const Candidate& candidate, std::optional<double> cost) override {
    for (const auto& value : candidate.config.values) {
      auto& record = records_[candidate.backend + "/" + value.first + "/" + std::to_string(value.second)];
      ++(cost ? record.fine : record.failed);
    }
    if (!cost) return;
    const bool is_centre = centre_ && *centre_ == candidate;
    if (is_centre) centre_cost_ = cost;
    const bool better_than_centre = !centre_ || (centre_cost_ && *cost < *centre_cost_);
    const bool best_of_all = best() && best()->first == candidate;
    if (is_centre || !(better_than_centre || best_of_all)) return;
    centre_ = candidate;
    centre_cost_ = cost;
    list_steps();
  }

 private:
  struct Record {
    int fine = 0, failed = 0;
  };

  /// A value that failed three times and never worked is left out nine times in ten.
  bool shunned(const Candidate& candidate) {
    for (const auto& value : candidate.config.values) {
      const auto found = records_.find(candidate.backend + "/" + value.first + "/" + std::to_string(value.second));
      if (found != records_.end() && found->second.fine == 0 && found->second.failed >= 3 && pick(random_, 10) != 0)
        return true;
    }
    return false;
  }

  std::optional<Candidate> anything() {
    std::optional<Candidate> candidate;
    for (int tries = 0; tries < 4; ++tries) {
      candidate = everything_.take();
      if (!candidate) break;
      if (seen(*candidate)) continue;
      if (!shunned(*candidate)) return candidate;
      everything_.put_back(*candidate);
    }
    while ((candidate = everything_.take()))
      if (!seen(*candidate)) return candidate;
    return std::nullopt;
  }

  std::optional<Candidate> next_step() {
    while (!steps_.empty()) {
      Candidate candidate = std::move(steps_.front());
      steps_.pop_front();
      if (!seen(candidate) && !shunned(candidate)) return candidate;
    }
    return std::nullopt;
  }

  /// All admitted candidates one step from the centre, in random order.
  void list_steps() {
    steps_.clear();
    const auto& part = this->part(centre_->backend);
    for (std::size_t a = 0; a < part.space.axes.size(); ++a) {
      const auto& values = part.space.axes[a].values;
      const auto at = std::find(values.begin(), values.end(), centre_->config.values[a].second) - values.begin();
      for (const auto neighbour : {at - 1, at + 1}) {
        if (neighbour < 0 || neighbour >= static_cast<std::ptrdiff_t>(values.size())) continue;
        Candidate candidate = *centre_;
        candidate.config.values[a].second = values[static_cast<std::size_t>(neighbour)];
        if (part.space.contains(candidate.config)) steps_.push_back(std::move(candidate));
      }
    }
    for (std::size_t i = steps_.size(); i > 1; --i) std::swap(steps_[i - 1], steps_[pick(random_, i)]);
  }

  /// `from` with two or three axes set anew.
  Candidate kicked(const Candidate& from) {
    const auto& part = this->part(from.backend);
    for (int tries = 0; tries < 50 && !part.space.axes.empty(); ++tries) {
      Candidate candidate = from;
      for (std::size_t i = 0, changes = 2 + pick(random_, 2); i < changes; ++i) {
        const std::size_t a = pick(random_, part.space.axes.size());
        const auto& values = part.space.axes[a].values;
        candidate.config.values[a].second = values[pick(random_, values.size())];
      }
      if (part.space.contains(candidate.config)) return candidate;
    }
    return from;
  }

  /// The whole space in random order, to draw from.
  class Urn : public Shuffled {
   public:
    Urn(const SearchSpace& space, std::uint64_t seed) : Shuffled(space, seed) {}
    std::optional<Candidate> take() { return propose(); }
    void put_back(Candidate candidate) { left_.push_back(std::move(candidate)); }
  };

  std::mt19937_64 random_;
  Urn everything_;
  std::optional<Candidate> centre_;
  std::optional<double> centre_cost_;
  std::deque<Candidate> steps_;
  std::map<std::string, Record> records_;
};

}  // namespace

bool SearchSpace::contains(const Candidate& candidate) const {
  return std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.backend == candidate.backend && part.space.contains(candidate.config);
  });
}

Strategy::Strategy(SearchSpace space) : space_(std::move(space)) {
  for (const auto& part : space_.parts) first_.push_back({part.backend, part.first});
  for (const auto& seed : space_.seeds)
    if (space_.contains(seed)) first_.push_back(seed);
}

std::optional<Candidate> Strategy::next() {
  std::optional<Candidate> candidate;
  while (!first_.empty() && !candidate) {
    if (!seen(first_.front())) candidate = std::move(first_.front());
    first_.pop_front();
  }
  if (!candidate) candidate = propose();
  if (candidate) seen_.insert(key_of(*candidate));
  return candidate;
}

void Strategy::tell(const Candidate& candidate, std::optional<double> cost) {
  seen_.insert(key_of(candidate));
  if (cost && (!best_ || *cost < best_->second)) best_ = {candidate, *cost};
  learn(candidate, cost);
}

bool Strategy::seen(const Candidate& candidate) const { return seen_.contains(key_of(candidate)); }

const SearchSpace::Part& Strategy::part(const std::string& backend) const {
  const auto found =
      std::find_if(space_.parts.begin(), space_.parts.end(), [&](const auto& part) { return part.backend == backend; });
  if (found == space_.parts.end()) throw std::logic_error("no space for backend " + backend);
  return *found;
}

std::unique_ptr<Strategy> make_strategy(StrategyKind kind, SearchSpace space, std::uint64_t seed) {
  switch (kind) {
    case StrategyKind::exhaustive:
      return std::make_unique<Exhaustive>(std::move(space));
    case StrategyKind::random:
      return std::make_unique<Shuffled>(std::move(space), seed);
    case StrategyKind::local:
      break;
  }
  return std::make_unique<LocalSearch>(std::move(space), seed);
}

}  // namespace moetune
