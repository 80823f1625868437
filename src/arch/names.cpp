#include "arch/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

namespace moetune {

std::string name_key(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-' || c == '\t') continue;
    key += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  for (const std::string_view prefix : {"nvidia", "geforce"})
    if (key.starts_with(prefix)) key.erase(0, prefix.size());
  return key;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> known, std::size_t count) {
  const std::string key = name_key(name.substr(0, kMaxNameBytes));
  if (key.empty()) return {};
  const std::size_t reach = 1 + key.size() / 3;
  std::vector<std::tuple<std::size_t, std::size_t, std::string>> near;  // distance, length, name
  std::set<std::string> seen;
  for (const auto& candidate : known) {
    const std::string other = name_key(candidate);
    const bool contains = key.size() >= 2 && other.find(key) != std::string::npos;
    const std::size_t distance = contains ? 0 : edit_distance(key, other);
    if (distance <= reach && seen.insert(other).second) near.emplace_back(distance, other.size(), candidate);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> names;
  for (const auto& entry : near)
    if (names.size() < count) names.push_back(std::get<2>(entry));
  return names;
}

std::string quoted_name(std::string_view name) {
  constexpr std::size_t kShown = 60;
  std::string text = "'";
  for (const char c : name.substr(0, kShown)) {
    if (c >= ' ' && c <= '~')
      text += c;
    else
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text + (name.size() > kShown ? "…'" : "'");
}

}  // namespace moetune
