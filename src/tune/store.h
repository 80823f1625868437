// Results that outlive the process: one SQLite file, safe to kill at any moment and to share between processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/target.h"
#include "backend/evaluator.h"
#include "base/error.h"
#include "measure/floor.h"
#include "measure/verdict.h"
#include "model/problem.h"

namespace moetune {

class Database;

/// Everything that can change a candidate's outcome: two runs with the same identity share results. The model's name
/// and where the target's facts are known from are kept for people and do not count, so that models with the same layer
/// share results too.
struct Identity {
  Problem problem;
  Target target;
  std::string weights;   ///< "random 1", or the content hash of the checkpoint's description
  std::string protocol;  ///< how it was measured: stop rule, traffic, version of the measuring code

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("problem", self.problem);
    visit("target", self.target);
    visit("weights", self.weights);
    visit("protocol", self.protocol);
  }
};

/// One stored outcome.
struct StoredResult {
  std::int64_t id = 0;
  std::string model, target;  ///< names, for people
  Problem problem;
  Workload workload;
  Candidate candidate;
  std::string revision;  ///< of the backend
  Outcome outcome;
  std::string created;  ///< UTC, ISO 8601

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("id", self.id);
    visit("created", self.created);
    visit("model", self.model);
    visit("target", self.target);
    visit("problem", self.problem);
    visit("workload", self.workload);
    visit("candidate", self.candidate);
    visit("revision", self.revision);
    visit("outcome", self.outcome);
  }
};

/// What a search settled on for one row.
struct StoredWinner {
  std::string model, target;  ///< names, for people
  Problem problem;
  Workload workload;
  Candidate winner;
  std::string revision;  ///< of the winner's backend
  Candidate fallback;    ///< the default it was compared with
  Speed verdict = Speed::tie;
  double us_median = 0;
  std::optional<double> default_us;  ///< nothing: the default does not run
  std::string created;               ///< UTC, ISO 8601

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("created", self.created);
    visit("model", self.model);
    visit("target", self.target);
    visit("problem", self.problem);
    visit("workload", self.workload);
    visit("winner", self.winner);
    visit("revision", self.revision);
    visit("fallback", self.fallback);
    visit("verdict", self.verdict);
    visit("us_median", self.us_median);
    visit("default_us", self.default_us);
  }
};

struct StoredCeilings {
  Ceilings ceilings;
  std::string created;  ///< UTC, ISO 8601
};

/// A candidate with the revision of its backend.
struct Finalist {
  Candidate candidate;
  std::string revision;
};

class Store {
 public:
  /// Opens or creates; parent folders too. A file of an older moetune is brought up to date. Errors: the file is no
  /// database or damaged, is another program's, was written by a newer moetune, is locked for longer than ten seconds.
  /// Never deletes anything.
  [[nodiscard]] static Result<Store> open(const std::string& path);
  /// The file where results are kept unless another is asked for: results.sqlite in cache_folder().
  [[nodiscard]] static std::string default_path();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  /// What is known of this candidate in this very situation. Throttled ones are not known: they are worth another try.
  [[nodiscard]] Result<std::optional<Outcome>> find(const Identity& identity, const Workload& workload,
                                                    const Candidate& candidate, std::string_view revision);
  /// On disk when it returns; replaces what was known. Interrupted ones (skipped) are never stored.
  [[nodiscard]] Status add(const Identity& identity, const Workload& workload, const Candidate& candidate,
                           std::string_view revision, const Outcome& outcome);

  /// The outcomes of a race between these finalists in this order, one each.
  [[nodiscard]] Result<std::optional<std::vector<Outcome>>> find_race(const Identity& identity,
                                                                      const Workload& workload,
                                                                      std::span<const Finalist> finalists);
  [[nodiscard]] Status add_race(const Identity& identity, const Workload& workload, std::span<const Finalist> finalists,
                                std::span<const Outcome> outcomes);

  /// Keeps the latest winner of each identity, model name and workload. Names, problem and time are filled in here.
  [[nodiscard]] Status add_winner(const Identity& identity, const StoredWinner& winner);
  [[nodiscard]] Status add_ceilings(const Target& target, const Ceilings& ceilings);
  /// The latest of that target.
  [[nodiscard]] Result<std::optional<StoredCeilings>> find_ceilings(const Target& target);

  struct Filter {
    std::string model = {};    ///< part of the model's name, upper or lower case; empty: all
    std::string backend = {};  ///< id; empty: all
    std::optional<std::int64_t> tokens = {};
    std::optional<OutcomeStatus> status = {};
    std::int64_t limit = 1000;
  };
  /// Newest first.
  [[nodiscard]] Result<std::vector<StoredResult>> list(const Filter& filter);
  /// Newest first; `status` is not looked at.
  [[nodiscard]] Result<std::vector<StoredWinner>> list_winners(const Filter& filter);

 private:
  explicit Store(Database database);

  std::unique_ptr<Database> database_;
};

}  // namespace moetune
