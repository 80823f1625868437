#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace moetune {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

/// Length of the UTF-8 sequence at the front of `text`, 0 where it is not one (overlong forms and surrogates are not).
std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!continues(text[i])) return 0;
  const unsigned char second = at(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
      (first == 0xF4 && second > 0x8F))
    return 0;
  return length;
}

std::string pad(const std::string& text, std::size_t width, Table::Align align) {
  const std::string space(width - std::min(width, display_width(text)), ' ');
  return align == Table::Align::right ? space + text : text + space;
}

}  // namespace

std::string for_terminal(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool control = length == 1 ? first < 0x20 || first == 0x7F
                                     : length == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    if (length == 0)
      clean += '?';
    else if (control)
      clean += ' ';
    else
      clean += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return clean;
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines{""};
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    std::string& line = lines.back();
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width)
      lines.emplace_back(word);
    else
      line += (line.empty() ? "" : " ") + std::string(word);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void Table::row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (auto& cell : cells) cell = for_terminal(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::str(std::size_t width) const {
  if (rows_.empty()) return "";
  std::vector<std::size_t> widths;
  std::size_t before_last = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t widest = display_width(columns_[c].title);
    for (const auto& cells : rows_) widest = std::max(widest, display_width(cells[c]));
    widths.push_back(widest);
    if (c + 1 < columns_.size()) before_last += widest + 2;
  }
  const std::size_t room = std::max<std::size_t>(width - std::min(width, before_last), 30);
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string front;
    for (std::size_t c = 0; c + 1 < cells.size(); ++c) front += pad(cells[c], widths[c], columns_[c].align) + "  ";
    auto parts = columns_.back().align == Align::left
                     ? wrap(cells.back(), room)
                     : std::vector<std::string>{pad(cells.back(), widths.back(), Align::right)};
    for (const auto& part : parts) {
      std::string whole = front + part;
      whole.erase(whole.find_last_not_of(' ') + 1);
      text += whole + "\n";
      front.assign(before_last, ' ');
    }
  };
  std::vector<std::string> titles;
  for (const auto& column : columns_) titles.push_back(column.title);
  line(titles);
  for (const auto& cells : rows_) line(cells);
  return text;
}

std::string show_bytes(double bytes) {
  for (const auto& [unit, size] : {std::pair{"GB", 1e9}, std::pair{"MB", 1e6}, std::pair{"kB", 1e3}})
    if (bytes >= size) return fmt::format("{:.{}f} {}", bytes / size, bytes >= 100 * size ? 0 : 1, unit);
  return fmt::format("{:.0f} B", bytes);
}

std::string show_us(double us) {
  if (us >= 1e6) return fmt::format("{:.2f} s", us / 1e6);
  if (us >= 1e4) return fmt::format("{:.2f} ms", us / 1e3);
  return fmt::format("{:.0f} us", us);
}

std::string show_seconds(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace moetune
