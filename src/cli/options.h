// What several subcommands share: the flags that name a layer and where it runs, and how their values are read.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/target.h"
#include "backend/backend.h"
#include "base/error.h"
#include "model/model.h"
#include "model/problem.h"
#include "moe/routing.h"

namespace moetune {

/// "1,16,64", ranges by doubling "1-64" allowed; each 0 … 1,048,576, at most 64 of them, in the order given, duplicates
/// dropped.
[[nodiscard]] Result<std::vector<std::int64_t>> parse_tokens(std::string_view text);

/// "90s", "10m", "1h", "250ms", or a bare number of evaluations ("200").
struct Budget {
  std::optional<double> seconds;
  std::optional<std::int64_t> evaluations;

  bool operator==(const Budget&) const = default;
};
[[nodiscard]] Result<Budget> parse_budget(std::string_view text);

/// A check for flags of whole numbers from 0 on, of which CLI11 itself reads "-1" as 2^64 - 1, and what is larger too.
[[nodiscard]] std::string check_count(const std::string& text);

/// Flags that say which layer.
struct LayerOptions {
  std::string model;
  Cut cut;
  std::int64_t layer = -1;
  std::uint64_t seed = 1;

  void add_to(CLI::App& command);
};

/// The layer those flags name.
struct LayerChoice {
  Model model;
  Problem problem;
  Cut cut;
  std::string weights_folder;  ///< real weights are read from here; empty: random ones
  std::int64_t layer = -1;
  std::uint64_t seed = 1;

  /// "random weights, seed 1" or "weights of layer 3 in FOLDER".
  [[nodiscard]] std::string weights_origin() const;
};
[[nodiscard]] Result<LayerChoice> choose_layer(const LayerOptions& options);

/// Flags that say where. A GPU can be named that is not here: then only `check` has something to say.
struct TargetOptions {
  std::string device;  ///< "cpu"; empty: every device here
  std::string gpu;     ///< product name, alias or sm_XX

  void add_device(CLI::App& command);
  void add_gpu(CLI::App& command);
};
/// The target to run on: the first of the chosen kind on this machine.
[[nodiscard]] Result<Target> choose_target(const TargetOptions& options, const Registry& registry);

/// Flags that say how the tokens of a benchmark are routed.
struct RoutingOptions {
  std::string tokens = "1,4,16,64";
  std::string routing = "uniform";

  void add_to(CLI::App& command);
};
[[nodiscard]] Result<RoutingKind> parse_routing(const RoutingOptions& options);

}  // namespace moetune
