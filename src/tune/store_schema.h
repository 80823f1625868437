// The layout of the store's file and what its rows are filed under. Internal to tune/.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "tune/sqlite.h"
#include "tune/store.h"

namespace moetune {

/// Brings the file up to this program's layout in one transaction: makes it, migrates it, or leaves it untouched with
/// an Error where it is another program's or a newer moetune's.
[[nodiscard]] Status prepare_schema(Database& database);

/// What of an identity counts: all but names and provenance.
[[nodiscard]] Json identity_content(const Identity& identity);

/// Content hash of everything that can change a candidate's outcome.
[[nodiscard]] std::string result_key(const Identity& identity, const Workload& workload, const Candidate& candidate,
                                     std::string_view revision);

}  // namespace moetune
