// A line on standard error that says how far a long run is.
#pragma once

#include <string>

#include "tune/tuner.h"

namespace moetune {

/// On a terminal one line that is rewritten; elsewhere a line every ten seconds.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);
  /// Ends the line.
  void finish();

 private:
  bool terminal_;
  double last_ = 0;
  bool open_ = false;
};

/// "row 2 of 4 (16 tokens): 37 tried, best 812 us (moetune:cpu_decode threads=2 …), 1 min 20 s, about 40 s left".
[[nodiscard]] std::string progress_text(const TuneProgress& progress, std::optional<double> budget_s);

}  // namespace moetune
