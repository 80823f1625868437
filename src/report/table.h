// Tables for people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

/// Columns as wide as their widest cell, two spaces between them, numbers to the right. The last column is wrapped at
/// the terminal's width.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// One cell a column; control characters are shown as spaces, invalid UTF-8 as '?'.
  void row(std::vector<std::string> cells);
  /// The whole table, a title line first, each line ended. Nothing at all without rows.
  [[nodiscard]] std::string str(std::size_t width = 160) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Columns a terminal shows for that text: code points, each counted as one.
[[nodiscard]] std::size_t display_width(std::string_view text);

/// Breaks text at spaces into lines of at most `width` columns; a longer word stays whole.
[[nodiscard]] std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// What a terminal may be shown: control characters (escape sequences among them) become spaces, bytes that are not
/// UTF-8 become '?'.
[[nodiscard]] std::string for_terminal(std::string_view text);

/// Short forms for people: "1.23 GB", "4.7 MB"; "12.3", "1234"; "950 us", "1.25 ms", "3 min 20 s".
[[nodiscard]] std::string show_bytes(double bytes);
[[nodiscard]] std::string show_us(double us);
[[nodiscard]] std::string show_seconds(double seconds);

}  // namespace moetune
