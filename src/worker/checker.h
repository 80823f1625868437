// Whether a backend's answers are right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/outcome.h"
#include "base/error.h"
#include "model/layer.h"
#include "worker/traffic.h"

namespace moetune {

/// Up to here every token of a call is compared with the reference; of longer calls as many as kSampledTokens.
inline constexpr std::int64_t kAllTokens = 64;
inline constexpr std::int64_t kSampledTokens = 32;
/// Calls are compared until so many tokens are, the first call always: one call of one token meets a few experts only.
inline constexpr std::int64_t kEnoughTokens = 16;

/// The tokens of a call that are compared: all (an empty list), or distinct ones in ascending order, the first and the
/// last among them and the others drawn from the seed, so that they do not keep step with any tile.
[[nodiscard]] std::vector<std::int64_t> compared_tokens(std::int64_t tokens, std::uint64_t seed);

/// The reference's answers to the first calls of a workload.
class Checker {
 public:
  /// Runs the reference: seconds for a large layer.
  [[nodiscard]] static Result<Checker> make(const Problem& problem, const Layer& layer, const Traffic& traffic,
                                            std::uint64_t seed);

  /// Of the calls of the traffic it was made for, the first so many are checked.
  [[nodiscard]] std::size_t calls() const { return references_.size(); }
  /// How a call's answers look. The output is poisoned before and must be written whole, finite in every token, and
  /// near the reference; nothing beside it may be written. Fills status, relative_error, tolerance and diagnosis, which
  /// begins with `when`.
  enum class Way {
    run,   ///< Session::run
    timed  ///< Session::time, which may take another path: graphs, its own buffers
  };
  [[nodiscard]] Outcome check(Session& session, Traffic& traffic, std::size_t call, Way way,
                              std::string_view when) const;

  /// Memory that it holds.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  std::int64_t hidden_ = 0;
  double tolerance_ = 0;
  std::vector<std::int64_t> tokens_;            ///< compared; empty: all
  std::vector<std::vector<float>> references_;  ///< [tokens, hidden] of each checked call
};

/// A failure that the backend itself reported, while doing what `doing` says. The error's kind, where it has one,
/// decides the status.
[[nodiscard]] Outcome failed(OutcomeStatus status, const Error& error, std::string_view doing);

}  // namespace moetune
