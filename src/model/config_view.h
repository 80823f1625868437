// A config.json as a reader sees it: keys looked up under several names, in nested parts first, every number within
// bounds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace moetune {

/// Names one thing has in different families' files; eight at most.
class Aliases {
 public:
  constexpr Aliases(std::initializer_list<std::string_view> names) {
    for (const auto name : names) names_[count_++] = name;
  }
  [[nodiscard]] constexpr const std::string_view* begin() const { return names_.data(); }
  [[nodiscard]] constexpr const std::string_view* end() const { return names_.data() + count_; }

 private:
  std::array<std::string_view, 8> names_{};
  std::size_t count_ = 0;
};

class ConfigView {
 public:
  /// `config` outlives the view. Parts that describe the text model or the experts (text_config, ffn_config, moe, …)
  /// are searched before the rest.
  explicit ConfigView(const Json& config);

  /// The value of the first alias that is there and not null.
  [[nodiscard]] const Json* find(const Aliases& names) const;
  /// The name under which find() found it; empty where it did not.
  [[nodiscard]] std::string_view name_of(const Aliases& names) const;
  /// An integer from low to high, nothing where no alias is there. A list of equal integers counts as that integer
  /// (per-layer lists).
  [[nodiscard]] Result<std::optional<std::int64_t>> integer(const Aliases& names, std::int64_t low,
                                                            std::int64_t high) const;
  [[nodiscard]] Result<std::optional<double>> number(const Aliases& names, double low, double high) const;
  /// true, false, 0 or 1.
  [[nodiscard]] Result<std::optional<bool>> boolean(const Aliases& names) const;
  [[nodiscard]] Result<std::optional<std::string>> text(const Aliases& names) const;
  /// A list of integers from low to high, at most `most` long.
  [[nodiscard]] Result<std::optional<std::vector<std::int64_t>>> integers(const Aliases& names, std::int64_t low,
                                                                          std::int64_t high, std::size_t most) const;

 private:
  std::vector<const Json*> parts_;
};

/// "n_routed_experts: -1, allowed are 1 to 65536".
[[nodiscard]] tl::unexpected<Error> bad_value(std::string_view key, const Json& value, const std::string& allowed);

}  // namespace moetune
