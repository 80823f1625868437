// What TOML types cannot say about the data files: unique names, whole tables, references that hold.
#pragma once

#include "arch/facts.h"
#include "arch/toml_reader.h"

namespace moetune {

/// Each capability once, written "12.0"; its compile targets named after a chip and unique; limits that fit each other.
[[nodiscard]] Status check_archs(const TomlReader& file, const Facts& facts);

/// Each feature once, answered exactly once for every capability, for compile targets that the capability has.
[[nodiscard]] Status check_features(const TomlReader& file, const Facts& facts);

/// Each product's capability on file and its shared memory equal to the capability's; numbers above 0; dates that
/// exist.
[[nodiscard]] Status check_gpus(const TomlReader& file, const Facts& facts);

/// Fills `products` and `families`. A name must mean one thing: one product, one family, or a compile target.
[[nodiscard]] Status index_names(const TomlReader& file, Facts& facts);

/// A compile target taken apart: "sm_120a", "SM120A", "120a", "12.0", "compute_90".
struct TargetName {
  std::string compute_capability;  ///< "12.0", by its digits: sm_101 is "10.1"
  std::string target;              ///< "sm_120a"
};
/// Nothing where the name does not have that form. `key` as name_key makes it.
[[nodiscard]] std::optional<TargetName> parse_target_name(std::string_view key);

}  // namespace moetune
