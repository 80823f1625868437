#include "cuda/compile_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <vector>

namespace moetune::cuda {
namespace {

constexpr std::size_t kMaxWarningBytes = 16'000, kMaxErrorBytes = 2000, kMaxErrorLines = 50;

std::string_view trimmed(std::string_view line) {
  const auto first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

template <class Visit>
void each_line(std::string_view text, Visit&& visit) {
  text = text.substr(0, text.find('\0'));
  while (!text.empty()) {
    const auto newline = text.find('\n');
    visit(text.substr(0, newline));
    text = newline == std::string_view::npos ? std::string_view{} : text.substr(newline + 1);
  }
}

bool contains_any(std::string_view line, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [line](std::string_view word) { return line.find(word) != std::string_view::npos; });
}

bool is_report(std::string_view line) {
  if (line.starts_with("ptxas         .")) return true;
  return line.starts_with("ptxas info") &&
         contains_any(line, {" bytes gmem", "Compiling entry function ", "Function properties for ", ": Used ",
                             "Compile time = "});
}

/// The first text between single quotes after `start`.
std::string_view quoted(std::string_view line, std::size_t start = 0) {
  const auto open = line.find('\'', start);
  if (open == std::string_view::npos) return {};
  const auto close = line.find('\'', open + 1);
  return close == std::string_view::npos ? std::string_view{} : line.substr(open + 1, close - open - 1);
}

/// The hexadecimal number after "0x", `nth` of them on the line.
std::optional<std::uint64_t> hexadecimal(std::string_view line, int nth) {
  std::size_t at = 0;
  for (int i = 0; i <= nth; ++i) {
    at = line.find("0x", at);
    if (at == std::string_view::npos) return std::nullopt;
    at += 2;
  }
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), number, 16);
  return error == std::errc{} ? std::optional(number) : std::nullopt;
}

/// "Entry function 'f' uses too much shared data (0x3a980 bytes, 0x38c00 max)"
std::optional<Reason> too_much_shared(std::string_view line, const std::string& target) {
  if (line.find("uses too much shared data") == std::string_view::npos) return std::nullopt;
  const auto have = hexadecimal(line, 0), most = hexadecimal(line, 1);
  if (!have || !most) return std::nullopt;
  return Reason{ReasonCode::shared_memory,
                fmt::format("kernel {} declares {} bytes of shared memory", quoted(line), *have),
                fmt::format("at most {} bytes for {}", *most, target), "a smaller tile or fewer stages", ""};
}

bool is_missing_instruction(std::string_view line) {
  return contains_any(line, {"not supported on .target", "cannot be compiled for architecture", "requires .target"});
}

}  // namespace

std::string warnings_of(std::string_view log) {
  std::string kept;
  each_line(log, [&kept](std::string_view line) {
    if (is_report(line) || trimmed(line).empty() || kept.size() > kMaxWarningBytes) return;
    kept.append(line).push_back('\n');
  });
  if (kept.size() > kMaxWarningBytes) kept = kept.substr(0, kMaxWarningBytes) + "...\n";
  return kept;
}

std::string errors_of(std::string_view log) {
  std::vector<std::string_view> lines;
  each_line(log, [&lines](std::string_view line) {
    // "1 error detected in the compilation" counts what the other lines say.
    if (lines.size() >= kMaxErrorLines || !contains_any(line, {"error", "fatal", "detected during instantiation"}) ||
        contains_any(line, {" detected in the compilation", "Ptx assembly aborted"}))
      return;
    if (std::find(lines.begin(), lines.end(), trimmed(line)) == lines.end()) lines.push_back(trimmed(line));
  });
  if (lines.empty())
    each_line(log, [&lines](std::string_view line) {
      if (!trimmed(line).empty() && !is_report(line)) lines.push_back(trimmed(line));
    });
  std::string words;
  for (const auto line : lines) {
    if (words.size() > kMaxErrorBytes) break;
    words += (words.empty() ? "" : "; ") + std::string(line);
  }
  if (words.size() > kMaxErrorBytes) words = words.substr(0, kMaxErrorBytes) + "...";
  return words;
}

Reason reason_of(std::string_view log, const std::string& target, const std::string& compiler) {
  const auto errors = errors_of(log);
  const auto have =
      fmt::format("{} for {}: {}", compiler, target, errors.empty() ? "it gave no words" : std::string_view(errors));
  std::optional<Reason> known;
  each_line(log, [&](std::string_view line) {
    if (known) return;
    known = too_much_shared(line, target);
    if (!known && is_missing_instruction(line))
      known = Reason{ReasonCode::arch, have,
                     fmt::format("a target with {}", quoted(line).empty() ? "that instruction" : quoted(line)), "", ""};
  });
  return known ? *std::move(known) : Reason{ReasonCode::toolchain, have, "a program that compiles", "", ""};
}

}  // namespace moetune::cuda
