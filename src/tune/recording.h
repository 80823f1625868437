// An exhaustive search on file: what every candidate of every row took, so that strategies can be compared without a
// device. Replaying is exact and takes microseconds a candidate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/evaluator.h"
#include "base/error.h"
#include "tune/store.h"
#include "tune/strategy.h"
#include "tune/tuner.h"

namespace moetune {

struct RecordedAxis {
  std::string name;
  std::vector<std::int64_t> values;

  bool operator==(const RecordedAxis&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("name", self.name);
    visit("values", self.values);
  }
};

struct RecordedOutcome {
  std::vector<std::int64_t> config;  ///< one value an axis
  OutcomeStatus status = OutcomeStatus::ok;
  double us_median = 0;  ///< 0 unless ok
  double us_spread = 0;

  bool operator==(const RecordedOutcome&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("config", self.config);
    visit("status", self.status);
    visit("us_median", self.us_median);
    visit("us_spread", self.us_spread);
  }
};

/// One backend's space with what became of each candidate. What is not recorded is not part of the space.
struct RecordedPart {
  std::string backend;
  std::vector<RecordedAxis> axes;
  std::vector<std::int64_t> first;  ///< the default, one value an axis
  std::vector<RecordedOutcome> outcomes;

  bool operator==(const RecordedPart&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("backend", self.backend);
    visit("axes", self.axes);
    visit("first", self.first);
    visit("outcomes", self.outcomes);
  }
};

struct RecordedRow {
  Workload workload;
  bool exhaustive = false;  ///< every candidate there is was looked at
  std::vector<RecordedPart> parts;

  bool operator==(const RecordedRow&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("workload", self.workload);
    visit("exhaustive", self.exhaustive);
    visit("parts", self.parts);
  }
};

struct Recording {
  static constexpr int kVersion = 1;

  int version = kVersion;
  Identity identity;
  std::vector<RecordedRow> rows;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("version", self.version);
    visit("identity", self.identity);
    visit("rows", self.rows);
  }
};

/// Everything that a search looked at.
[[nodiscard]] Recording record(const TuneRequest& request, const TuneReport& report);

/// Reads and checks a recording: known version, values on their axes, no candidate twice, a positive time for each that
/// is ok, at least one of those a row. Errors name the row and the candidate.
[[nodiscard]] Result<Recording> read_recording(const std::string& path);

/// The row's space: its recorded candidates and no others.
[[nodiscard]] SearchSpace search_space(const RecordedRow& row);

/// The least median of the row, in us, and how many candidates it has.
[[nodiscard]] double best_us(const RecordedRow& row);
[[nodiscard]] std::size_t candidates(const RecordedRow& row);

/// Lets a strategy search the recorded row: best median found after 1, 2, … `evaluations`, in us; infinity before the
/// first that runs. Shorter where the space is exhausted earlier.
[[nodiscard]] std::vector<double> replay(const RecordedRow& row, StrategyKind kind, std::uint64_t seed,
                                         std::size_t evaluations);

}  // namespace moetune
