// The answer to "can this backend run this layer here?", with how it is known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/reason.h"

namespace moetune {

struct Verdict {
  std::string id;
  std::optional<bool> runs;  ///< nothing: not established
  Evidence evidence = Evidence::rules;
  std::optional<bool> automatic;      ///< what would be picked here without being asked for
  std::optional<std::string> select;  ///< the flag that picks it
  Reasons reasons;
  std::string note;  ///< e.g. that two rungs disagree; may be empty

  bool operator==(const Verdict&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    visit("id", self.id);
    visit("runs", self.runs);
    visit("evidence", self.evidence);
    visit("auto", self.automatic);
    visit("select", self.select);
    visit("reasons", self.reasons);
    visit("note", self.note);
  }
};

/// Every backend's verdict in registration order: from its rules, and where those say yes and there is something to
/// compile, from compiling it.
[[nodiscard]] std::vector<Verdict> check_backends(const Registry& registry, const Problem& problem,
                                                  const Target& target);

}  // namespace moetune
