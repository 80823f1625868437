#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "report/table.h"

namespace moetune {
namespace {

constexpr double kTerminalEveryS = 0.1;
constexpr double kLogEveryS = 10;
constexpr std::size_t kTerminalWidth = 150;

}  // namespace

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1), last_(now_s() - (terminal_ ? kTerminalEveryS : 0)) {}

Progress::~Progress() { finish(); }

void Progress::show(const std::string& text) {
  const double now = now_s();
  if (now - last_ < (terminal_ ? kTerminalEveryS : kLogEveryS)) return;
  last_ = now;
  const std::string line = for_terminal(text).substr(0, kTerminalWidth);
  std::fputs(terminal_ ? ("\r" + line + "\x1b[K").c_str() : (line + "\n").c_str(), stderr);
  std::fflush(stderr);
  open_ = terminal_;
}

void Progress::finish() {
  if (open_) std::fputs("\r\x1b[K", stderr);
  open_ = false;
}

std::string progress_text(const TuneProgress& progress, std::optional<double> budget_s) {
  std::string text = fmt::format("row {} of {}", progress.row + 1, progress.rows);
  if (progress.workload != nullptr) text += fmt::format(" ({} tokens)", progress.workload->tokens);
  text += fmt::format(": {} tried, {}", progress.evaluated, show_seconds(progress.elapsed_s));
  if (budget_s) text += fmt::format(", at most {} left", show_seconds(std::max(0.0, *budget_s - progress.elapsed_s)));
  if (progress.best != nullptr)
    text += fmt::format(", best {} ({} {})", show_us(progress.best->second), progress.best->first.backend,
                        describe(progress.best->first.config));
  return text;
}

}  // namespace moetune
