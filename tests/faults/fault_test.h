// What the fault tests share: workers that can be told from all other processes, short limits.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/subprocess.h"
#include "faulty_backend.h"
#include "worker/test_session.h"
#include "worker/worker_evaluator.h"

namespace moetune {

inline std::string whole_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Processes that run and have this word on their command line; what they started without another program has it too.
inline std::set<pid_t> processes_with(const std::string& word) {
  std::set<pid_t> found;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", problem)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (whole_file(entry.path() / "cmdline").find(word) == std::string::npos) continue;
    const std::string stat = whole_file(entry.path() / "stat");  // "42 (name) S …"
    const auto state = stat.find(") ");
    if (state != std::string::npos && stat[state + 2] != 'Z' && stat[state + 2] != 'X') found.insert(std::stoi(name));
  }
  return found;
}

class FaultTest : public ::testing::Test {
 protected:
  FaultTest() : mark_("mark-" + std::to_string(::getpid()) + "-" + std::to_string(++marks_)) {
    job_.problem = tiny_problem();
    options_.argv = {own_path(), "worker", mark_};
    options_.stop = options_.race_stop = {3, 5, 0.01, 0, 1};
    options_.evaluate_s = 30;
  }

  void TearDown() override {
    const double give_up = now_s() + 10;
    while (!processes_with(mark_).empty() && now_s() < give_up)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(processes_with(mark_).empty()) << "a process is left";
  }

  static Candidate candidate(Fault fault, std::int64_t us = 100) { return {"test:faulty", faulty_config(fault, us)}; }
  /// A worker made of a shell script.
  void script(const std::string& text) { options_.argv = {"/bin/sh", "-c", text, mark_}; }

  static constexpr Workload kWorkload{3, RoutingKind::uniform, 1};
  Job job_;
  WorkerOptions options_;
  const std::string mark_;

 private:
  static inline int marks_ = 0;
};

}  // namespace moetune
