#include "base/subprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "base/clock.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

Subprocess shell(const std::string& script, SubprocessOptions options = {}) {
  return std::move(Subprocess::start({"/bin/sh", "-c", script}, options).value());
}

TEST(Subprocess, AnswersLineByLine) {
  Subprocess child = shell("while read x; do echo \"<$x>\"; done; exit 3");
  std::string line;
  for (const char* word : {"one", "two"}) {
    ASSERT_TRUE(child.write_line(word));
    ASSERT_EQ(child.read_line(line, 10), Subprocess::Read::line);
    EXPECT_EQ(line, "<" + std::string(word) + ">");
  }
}

TEST(Subprocess, SaysHowItEnded) {
  std::string line;
  Subprocess exits = shell("echo why >&2; exit 3");
  EXPECT_EQ(exits.read_line(line, 10), Subprocess::Read::closed);
  ASSERT_TRUE(exits.wait(10));
  EXPECT_EQ(exits.ending(), "exit code 3");
  EXPECT_EQ(exits.log(), "why\n");
  Subprocess dies = shell("kill -SEGV $$");
  ASSERT_TRUE(dies.wait(10));
  EXPECT_EQ(dies.signal(), SIGSEGV);
  EXPECT_EQ(dies.ending(), "killed by signal 11 (Segmentation fault)");
  EXPECT_FALSE(dies.write_line("anybody?"));
}

TEST(Subprocess, TimesOutAndKillsTheWholeGroup) {
  Subprocess child = shell("trap '' TERM INT; sleep 1000 & echo $!; wait");
  std::string line;
  ASSERT_EQ(child.read_line(line, 10), Subprocess::Read::line);
  const pid_t grandchild = std::stoi(line);
  EXPECT_EQ(child.read_line(line, 0.05), Subprocess::Read::timed_out);
  child.kill();
  EXPECT_EQ(child.signal(), SIGKILL);
  const double give_up = now_s() + 10;
  // The orphan is reaped by the system's first process; a zombie until then does not count as alive.
  const auto alive = [&] {
    std::string state(64, '\0');
    FILE* file = std::fopen(("/proc/" + line + "/stat").c_str(), "r");
    if (file == nullptr) return false;
    const bool zombie = std::fscanf(file, "%*d %*s %1s", state.data()) == 1 && state[0] == 'Z';
    std::fclose(file);
    return !zombie;
  };
  line = std::to_string(grandchild);
  while (alive() && now_s() < give_up) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(alive());
}

TEST(Subprocess, BoundsWhatAChildMaySay) {
  SubprocessOptions options;
  options.max_line_bytes = 100'000;
  options.log_bytes = 1000;
  Subprocess endless = shell("while :; do printf xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", options);
  std::string line;
  EXPECT_EQ(endless.read_line(line, 20), Subprocess::Read::too_long);
  Subprocess flood = shell("i=0; while [ $i -lt 2000 ]; do echo \"line $i\" >&2; i=$((i+1)); done; echo done", options);
  ASSERT_EQ(flood.read_line(line, 20), Subprocess::Read::line);
  ASSERT_TRUE(flood.wait(10));
  EXPECT_LE(flood.log().size(), 2000U);
  EXPECT_THAT(flood.log(), HasSubstr("line 1999\n"));
}

TEST(Subprocess, AbsentProgramAndMemoryLimit) {
  Subprocess absent = std::move(Subprocess::start({"/nonexistent/program"}).value());
  ASSERT_TRUE(absent.wait(10));
  EXPECT_EQ(absent.ending(), "exit code 127");
  SubprocessOptions options;
  options.memory_limit_bytes = 64 << 20;
  Subprocess limited = shell("ulimit -v", options);
  std::string line;
  ASSERT_EQ(limited.read_line(line, 10), Subprocess::Read::line);
  EXPECT_EQ(line, "65536");
}

}  // namespace
}  // namespace moetune
