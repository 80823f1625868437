// Results that outlive the process: one SQLite file, safe to kill at any moment and to share between processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/target.h"
#include "backend/evaluator.h"
#include "base/error.h"
#include "model/problem.h"

struct sqlite3;

namespace moetune {

/// Everything that can change a candidate's outcome, and nothing else: two runs with the same identity may share
/// results.
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
};

class Store {
 public:
  /// Opens or creates; parent folders too. Errors: the file is no database, is another program's, was written by a
  /// newer moetune, is locked for longer than ten seconds. Never deletes anything.
  [[nodiscard]] static Result<Store> open(const std::string& path);
  /// The file where results are kept unless another is asked for: results.sqlite in cache_folder().
  [[nodiscard]] static std::string default_path();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  /// What is known of this candidate in this very situation. Interrupted ones (skipped) are never stored.
  [[nodiscard]] Result<std::optional<Outcome>> find(const Identity& identity, const Workload& workload,
                                                    const Candidate& candidate, std::string_view revision);
  /// On disk when it returns.
  [[nodiscard]] Status add(const Identity& identity, const Workload& workload, const Candidate& candidate,
                           std::string_view revision, const Outcome& outcome);

  struct Filter {
    std::string model;    ///< part of the model's name; empty: all
    std::string backend;  ///< id; empty: all
    std::optional<std::int64_t> tokens;
    std::optional<OutcomeStatus> status;
    std::int64_t limit = 1000;
  };
  /// Newest first.
  [[nodiscard]] Result<std::vector<StoredResult>> list(const Filter& filter);

 private:
  struct Closer {
    void operator()(sqlite3* database) const;
  };
  explicit Store(std::unique_ptr<sqlite3, Closer> database);
  [[nodiscard]] Status prepare_schema(const std::string& path);

  std::unique_ptr<sqlite3, Closer> database_;
};

}  // namespace moetune
