#include "base/subprocess.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/clock.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

Subprocess shell(const std::string& script, SubprocessOptions options = {}) {
  return std::move(Subprocess::start({"/bin/sh", "-c", script}, options).value());
}

std::string next_line(Subprocess& child) {
  std::string line;
  EXPECT_EQ(child.read_line(line, 20), Subprocess::Read::line);
  return line;
}

/// Whether the process runs; one that has ended and waits for its parent to notice does not.
bool alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name;
  char state = 'Z';
  file >> number >> name >> state;
  return state != 'Z' && state != 'X';
}

bool dies(pid_t pid) {
  for (const double give_up = now_s() + 10; now_s() < give_up;) {
    if (!alive(pid)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

TEST(Subprocess, AnswersLineByLine) {
  Subprocess child = shell("while read x; do echo \"<$x>\"; done; exit 3");
  for (const char* word : {"one", "two"}) {
    ASSERT_TRUE(child.write_line(word));
    EXPECT_EQ(next_line(child), "<" + std::string(word) + ">");
  }
}

TEST(Subprocess, SaysHowItEnded) {
  std::string line;
  Subprocess exits = shell("echo why >&2; exit 3");
  EXPECT_EQ(exits.read_line(line, 10), Subprocess::Read::closed);
  ASSERT_TRUE(exits.wait(10));
  EXPECT_EQ(exits.ending(), "exit code 3");
  EXPECT_EQ(exits.log(), "why\n");
  Subprocess killed = shell("kill -SEGV $$");
  ASSERT_TRUE(killed.wait(10));
  EXPECT_EQ(killed.signal(), SIGSEGV);
  EXPECT_EQ(killed.ending(), "killed by signal 11 (Segmentation fault)");
}

TEST(Subprocess, WritingToOneThatHasGoneFailsWithoutASignal) {
  Subprocess child = shell("exit 0");
  ASSERT_TRUE(child.wait(10));
  const auto status = child.write_line("anybody?");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().what, "cannot write to the child: Broken pipe");
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST(Subprocess, WritingToOneThatDoesNotReadEnds) {
  Subprocess child = shell("sleep 1000");
  const auto status = child.write_line(std::string(1 << 20, 'x'), 0.1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().what, "the child read nothing for 0.1 s");
}

// The child answers each part before it reads the next, so that neither may wait for the other with a full pipe.
TEST(Subprocess, LongLinesBothWaysDoNotLock) {
  Subprocess child = shell("tee /dev/stderr");
  const std::string text(3 << 20, 'x');
  ASSERT_TRUE(child.write_line(text));
  EXPECT_EQ(next_line(child), text);
}

TEST(Subprocess, TimesOutAndKillsTheWholeGroup) {
  Subprocess child = shell("trap '' TERM INT; sleep 1000 & echo $!; wait");
  const pid_t grandchild = std::stoi(next_line(child));
  std::string line;
  EXPECT_EQ(child.read_line(line, 0.05), Subprocess::Read::timed_out);
  EXPECT_TRUE(alive(grandchild));
  child.kill();
  EXPECT_EQ(child.signal(), SIGKILL);
  EXPECT_TRUE(dies(grandchild));
}

TEST(Subprocess, EndsThoughWhatItStartedHoldsThePipe) {
  Subprocess child = shell("sleep 1000 & echo $!; kill -SEGV $$");
  const pid_t grandchild = std::stoi(next_line(child));
  std::string line;
  EXPECT_EQ(child.read_line(line, 20), Subprocess::Read::closed);
  ASSERT_TRUE(child.wait(10));
  EXPECT_EQ(child.signal(), SIGSEGV);
  EXPECT_TRUE(dies(grandchild));
}

TEST(Subprocess, ClosedOutputIsNotAnEnd) {
  Subprocess child = shell("exec >&-; read x; exit 4");
  std::string line;
  EXPECT_EQ(child.read_line(line, 10), Subprocess::Read::closed);
  EXPECT_FALSE(child.wait(0.05));
  EXPECT_EQ(child.ending(), "");
  ASSERT_TRUE(child.write_line("end"));
  ASSERT_TRUE(child.wait(10));
  EXPECT_EQ(child.ending(), "exit code 4");
}

TEST(Subprocess, BoundsWhatAChildMaySay) {
  SubprocessOptions options;
  options.max_line_bytes = 100'000;
  options.log_bytes = 1000;
  Subprocess endless = shell("while :; do printf xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", options);
  std::string line;
  EXPECT_EQ(endless.read_line(line, 20), Subprocess::Read::too_long);
  Subprocess flood = shell("i=0; while [ $i -lt 2000 ]; do echo \"line $i\" >&2; i=$((i+1)); done; echo done", options);
  EXPECT_EQ(next_line(flood), "done");
  ASSERT_TRUE(flood.wait(10));
  EXPECT_EQ(flood.log().size(), 1000U);
  EXPECT_THAT(flood.log(), HasSubstr("line 1999\n"));
}

TEST(Subprocess, WhatCannotStartIsAnError) {
  const auto absent = Subprocess::start({"/nonexistent/program"});
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().what, "cannot start /nonexistent/program: No such file or directory");
  EXPECT_FALSE(Subprocess::start({}));
}

TEST(Subprocess, LimitsMemory) {
  SubprocessOptions options;
  options.memory_limit_bytes = 64 << 20;
  Subprocess limited = shell("ulimit -v", options);
  EXPECT_EQ(next_line(limited), "65536");
}

TEST(Subprocess, InheritsThreeDescriptorsAndNoIgnoredSignal) {
  // As a library that knows no close-on-exec would leave it; above what the shell itself opens.
  const int leaked = ::fcntl(STDERR_FILENO, F_DUPFD, 77);
  ASSERT_GE(leaked, 77);
  const auto before = ::signal(SIGHUP, SIG_IGN);
  Subprocess child = shell("for fd in 0 1 2 " + std::to_string(leaked) +
                           "; do test -e /proc/$$/fd/$fd && printf \"$fd \"; done; echo; kill -HUP $$; echo alive");
  ::signal(SIGHUP, before);
  ::close(leaked);
  EXPECT_EQ(next_line(child), "0 1 2 ");
  ASSERT_TRUE(child.wait(10));
  EXPECT_EQ(child.signal(), SIGHUP);
}

TEST(Subprocess, WorksWhereTheParentHasNoStandardInput) {
  const int saved = ::dup(STDIN_FILENO);
  ::close(STDIN_FILENO);
  {
    Subprocess child = shell("read x; echo \"<$x>\"; echo log >&2");
    EXPECT_TRUE(child.write_line("word"));
    EXPECT_EQ(next_line(child), "<word>");
    EXPECT_TRUE(child.wait(10));
    EXPECT_EQ(child.log(), "log\n");
  }
  if (saved >= 0) {
    ::dup2(saved, STDIN_FILENO);
    ::close(saved);
  }
}

TEST(Subprocess, AssigningKillsTheOneBefore) {
  Subprocess child = shell("sleep 1000");
  const pid_t first = child.pid();
  child = shell("echo second; sleep 1000");
  EXPECT_FALSE(alive(first));
  EXPECT_EQ(next_line(child), "second");
  const Subprocess moved = std::move(child);
  EXPECT_TRUE(alive(moved.pid()));
}

TEST(Subprocess, DiesWithAParentThatIsKilled) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    auto child = Subprocess::start({"/bin/sh", "-c", "trap '' TERM HUP INT; echo up; sleep 1000"});
    std::string line;
    if (!child || child->read_line(line, 10) != Subprocess::Read::line) ::_exit(1);
    const pid_t pid = child->pid();
    if (::write(pipe[1], &pid, sizeof(pid)) != static_cast<ssize_t>(sizeof(pid))) ::_exit(1);
    while (true) ::pause();
  }
  pid_t worker = -1;
  ASSERT_EQ(::read(pipe[0], &worker, sizeof(worker)), static_cast<ssize_t>(sizeof(worker)));
  EXPECT_TRUE(alive(worker));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(dies(worker));
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(OwnPath, StartsThisProgram) {
  auto child = Subprocess::start({own_path(), "--gtest_list_tests", "--gtest_filter=OwnPath.*"});
  ASSERT_TRUE(child);
  std::string all;
  for (std::string line; child->read_line(line, 20) == Subprocess::Read::line;) all += line + "\n";
  EXPECT_THAT(all, HasSubstr("StartsThisProgram"));
}

}  // namespace
}  // namespace moetune
