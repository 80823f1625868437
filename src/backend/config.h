// The tunable numbers of a backend and the space they are chosen from.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace moetune {

/// Named integers in the order of the space's axes, e.g. {threads: 2, tile_n: 64}.
struct Config {
  std::vector<std::pair<std::string, std::int64_t>> values;

  bool operator==(const Config&) const = default;
  /// The value of that name; the axis must exist.
  [[nodiscard]] std::int64_t get(std::string_view name) const;

  /// As JSON: an object of integers. Anything else is an error.
  [[nodiscard]] Json json() const;
  [[nodiscard]] Status read_json(const Json& json);
};
/// For people: "threads=2 tile_n=64".
[[nodiscard]] std::string describe(const Config& config);

struct Axis {
  std::string name;
  std::vector<std::int64_t> values;  ///< ascending; neighbours in this list are neighbours in the search
  std::string help;                  ///< what the number means, with its unit
};

struct Space {
  std::vector<Axis> axes;
  std::function<bool(const Config&)> admits;  ///< constraints between axes; empty: all combinations

  [[nodiscard]] bool contains(const Config& config) const;
  /// Every admitted combination, the last axis fastest.
  [[nodiscard]] std::vector<Config> all() const;
};

}  // namespace moetune
