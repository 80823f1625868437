#include "tune/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <stdexcept>

#include "base/file.h"
#include "base/json.h"
#include "tune/sqlite.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    std::string pattern = (fs::temp_directory_path() / "moetune_store_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~StoreTest() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name = "results.sqlite") const { return folder_ / name; }
  [[nodiscard]] std::string bytes_of(const std::string& file) const { return *read_file(file, std::size_t{64} << 20); }
  [[nodiscard]] static Store open(const std::string& file) {
    auto store = Store::open(file);
    if (!store) throw std::runtime_error(store.error().what);
    return std::move(*store);
  }

  fs::path folder_;
};

Identity identity() {
  Identity identity;
  identity.problem.model = "Qwen/Qwen3-30B-A3B";
  identity.problem.experts = identity.problem.experts_global = 128;
  identity.problem.top_k = 8;
  identity.problem.hidden = 2048;
  identity.problem.intermediate = 768;
  identity.target.name = "a processor";
  identity.target.simd = "avx2";
  identity.target.cores = 2;
  identity.target.source = "probed";
  identity.weights = "random 1";
  identity.protocol = "1";
  return identity;
}

Candidate candidate(std::int64_t threads = 2) { return {"t:decode", {{{"threads", threads}, {"rows", 32}}}}; }

Outcome timed(std::vector<double> samples) {
  Outcome outcome;
  outcome.samples_us = std::move(samples);
  outcome.relative_error = 0.003;
  outcome.tolerance = 0.02;
  outcome.active_experts = 7.5;
  outcome.pairs = 8;
  return outcome;
}

Outcome failed(OutcomeStatus status) {
  Outcome outcome;
  outcome.status = status;
  outcome.diagnosis = "killed by signal 11 (Segmentation fault)";
  outcome.reasons = {{ReasonCode::shape, "96", "a multiple of 64", "pad it", "here"}};
  outcome.log = "line 1\nline \"2\"\t\x01\n";
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b) { EXPECT_EQ(dump_json(to_json(a)), dump_json(to_json(b))); }

TEST_F(StoreTest, RoundTrip) {
  Store store = open(path("deep/er/results.sqlite"));
  const Workload workload{16, RoutingKind::power_law, 3};
  EXPECT_FALSE(*store.find(identity(), workload, candidate(), "r1"));
  ASSERT_TRUE(store.add(identity(), workload, candidate(), "r1", timed({1.5, 0.1, 1e-3, 12345678.9})));
  ASSERT_TRUE(store.add(identity(), workload, candidate(1), "r1", failed(OutcomeStatus::crashed)));
  const auto expect_found = [&](Store& s) {
    const auto fine = s.find(identity(), workload, candidate(), "r1");
    ASSERT_TRUE(fine && *fine);
    expect_same(**fine, timed({1.5, 0.1, 1e-3, 12345678.9}));
    expect_same(**s.find(identity(), workload, candidate(1), "r1"), failed(OutcomeStatus::crashed));
  };
  expect_found(store);
  Store again = open(path("deep/er/results.sqlite"));
  expect_found(again);
}

TEST_F(StoreTest, LaterReplacesEarlierAndInterruptedIsNotKept) {
  Store store = open(path());
  ASSERT_TRUE(store.add(identity(), {}, candidate(), "r", failed(OutcomeStatus::timed_out)));
  ASSERT_TRUE(store.add(identity(), {}, candidate(), "r", failed(OutcomeStatus::skipped)));
  EXPECT_EQ((*store.find(identity(), {}, candidate(), "r"))->status, OutcomeStatus::timed_out);
  ASSERT_TRUE(store.add(identity(), {}, candidate(), "r", timed({2})));
  EXPECT_EQ((*store.find(identity(), {}, candidate(), "r"))->samples_us, std::vector<double>{2});
  // Throttled: kept, but worth another try.
  ASSERT_TRUE(store.add(identity(), {}, candidate(), "r", failed(OutcomeStatus::throttled)));
  EXPECT_FALSE(*store.find(identity(), {}, candidate(), "r"));
  EXPECT_EQ(store.list({})->size(), 1U);
}

TEST_F(StoreTest, EverythingThatCanChangeAResultIsInTheKey) {
  Store store = open(path());
  const Workload workload{4, RoutingKind::uniform, 1};
  ASSERT_TRUE(store.add(identity(), workload, candidate(), "r", timed({1})));
  const auto known = [&](const std::function<void(Identity&, Workload&, Candidate&, std::string&)>& change) {
    Identity i = identity();
    Workload w = workload;
    Candidate c = candidate();
    std::string revision = "r";
    change(i, w, c, revision);
    return store.find(i, w, c, revision)->has_value();
  };
  EXPECT_TRUE(known([](auto&, auto&, auto&, auto&) {}));
  EXPECT_FALSE(known([](auto& i, auto&, auto&, auto&) { i.problem.hidden = 4096; }));
  EXPECT_FALSE(known([](auto& i, auto&, auto&, auto&) { i.problem.activations = ActivationFormat::fp8; }));
  EXPECT_FALSE(known([](auto& i, auto&, auto&, auto&) { i.target.name = "another"; }));
  EXPECT_FALSE(known([](auto& i, auto&, auto&, auto&) { i.target.cores = 3; }));
  EXPECT_FALSE(known([](auto& i, auto&, auto&, auto&) { i.weights = "random 2"; }));
  EXPECT_FALSE(known([](auto& i, auto&, auto&, auto&) { i.protocol = "2"; }));
  EXPECT_FALSE(known([](auto&, auto& w, auto&, auto&) { w.tokens = 5; }));
  EXPECT_FALSE(known([](auto&, auto& w, auto&, auto&) { w.routing = RoutingKind::one_hot; }));
  EXPECT_FALSE(known([](auto&, auto& w, auto&, auto&) { w.seed = 2; }));
  EXPECT_FALSE(known([](auto&, auto&, auto& c, auto&) { c.backend = "t:prefill"; }));
  EXPECT_FALSE(known([](auto&, auto&, auto& c, auto&) { c.config.values[0].second = 3; }));
  EXPECT_FALSE(known([](auto&, auto&, auto&, auto& revision) { revision = "r2"; }));
  // Names and provenance change nothing.
  EXPECT_TRUE(known([](auto& i, auto&, auto&, auto&) { i.problem.model = "a copy of it"; }));
  EXPECT_TRUE(known([](auto& i, auto&, auto&, auto&) { i.target.source = "data/gpus.toml"; }));
}

TEST_F(StoreTest, ListsByFilter) {
  Store store = open(path());
  Identity other = identity();
  other.problem.model = "zai-org/GLM-5";
  other.problem.hidden = 6144;
  for (const std::int64_t tokens : {1, 16, 64})
    ASSERT_TRUE(
        store.add(tokens == 16 ? identity() : other, {tokens, RoutingKind::uniform, 1}, candidate(), "r", timed({3})));
  ASSERT_TRUE(store.add(identity(), {}, {"t:prefill", {}}, "r", failed(OutcomeStatus::nan)));
  const auto count = [&](const Store::Filter& filter) { return store.list(filter)->size(); };
  EXPECT_EQ(count({}), 4U);
  EXPECT_EQ(count({.model = "glm"}), 2U);
  EXPECT_EQ(count({.model = "qwen"}), 2U);
  EXPECT_EQ(count({.model = "%"}), 0U);  // no pattern
  EXPECT_EQ(count({.model = "' OR 1=1 --"}), 0U);
  EXPECT_EQ(count({.backend = "t:prefill"}), 1U);
  EXPECT_EQ(count({.tokens = 16}), 1U);
  EXPECT_EQ(count({.status = OutcomeStatus::nan}), 1U);
  EXPECT_EQ(count({.tokens = 64, .status = OutcomeStatus::nan}), 0U);
  EXPECT_EQ(count({.limit = 3}), 3U);
  const auto newest = store.list({.limit = 1})->front();
  EXPECT_EQ(newest.candidate.backend, "t:prefill");
  EXPECT_EQ(newest.model, "Qwen/Qwen3-30B-A3B");
  EXPECT_EQ(newest.problem, identity().problem);
  expect_same(newest.outcome, failed(OutcomeStatus::nan));
  EXPECT_EQ(to_json(newest)["outcome"]["status"], "nan");
}

TEST_F(StoreTest, RacesWinnersCeilings) {
  Store store = open(path());
  const std::vector<Finalist> finalists = {{candidate(1), "r"}, {candidate(2), "r"}};
  const std::vector<Outcome> outcomes = {timed({2, 2.1}), failed(OutcomeStatus::crashed)};
  ASSERT_TRUE(store.add_race(identity(), {}, finalists, outcomes));
  const auto race = *store.find_race(identity(), {}, finalists);
  ASSERT_TRUE(race);
  ASSERT_EQ(race->size(), 2U);
  expect_same((*race)[0], outcomes[0]);
  expect_same((*race)[1], outcomes[1]);
  EXPECT_FALSE(*store.find_race(identity(), {}, std::span(finalists).first(1)));
  EXPECT_FALSE(*store.find_race(identity(), {}, std::vector<Finalist>{{candidate(1), "r"}, {candidate(2), "r2"}}));
  EXPECT_FALSE(*store.find_race(identity(), {2, RoutingKind::uniform, 1}, finalists));

  StoredWinner winner;
  winner.winner = candidate(1);
  winner.fallback = candidate(2);
  winner.revision = "r";
  winner.verdict = Speed::faster;
  winner.us_median = 812.5;
  winner.default_us = 1000;
  ASSERT_TRUE(store.add_winner(identity(), winner));
  winner.us_median = 800;
  ASSERT_TRUE(store.add_winner(identity(), winner));  // the same row found again: replaces
  Identity copy = identity();
  copy.problem.model = "a copy of it";
  ASSERT_TRUE(store.add_winner(copy, winner));  // the same results under another name: its own winner
  const auto winners = *store.list_winners({.model = "qwen"});
  ASSERT_EQ(winners.size(), 1U);
  EXPECT_EQ(winners[0].us_median, 800);
  EXPECT_EQ(winners[0].winner, candidate(1));
  EXPECT_EQ(winners[0].default_us, 1000);
  EXPECT_EQ(winners[0].problem, identity().problem);
  EXPECT_EQ(winners[0].created.size(), std::string("2026-01-01T00:00:00Z").size());
  EXPECT_EQ(store.list_winners({})->size(), 2U);
  EXPECT_EQ(store.list_winners({.backend = "t:none"})->size(), 0U);

  EXPECT_FALSE(*store.find_ceilings(identity().target));
  Ceilings ceilings;
  ceilings.read_gb_s = 25.5;
  ceilings.reads = {{1 << 20, 12.0}, {1 << 24, 25.5}};
  ASSERT_TRUE(store.add_ceilings(identity().target, {}));
  ASSERT_TRUE(store.add_ceilings(identity().target, ceilings));
  EXPECT_EQ((*store.find_ceilings(identity().target))->ceilings, ceilings);
  Target other = identity().target;
  other.cores = 64;
  EXPECT_FALSE(*store.find_ceilings(other));
}

/// The file as moetune 0.1 before races wrote it.
void write_layout_1(const std::string& path) {
  auto database = Database::open(path, 1000);
  ASSERT_TRUE(database);
  ASSERT_TRUE(database->execute(
      "CREATE TABLE results (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, created TEXT NOT NULL, model TEXT NOT "
      "NULL, target TEXT NOT NULL, problem TEXT NOT NULL, workload TEXT NOT NULL, tokens INTEGER NOT NULL, backend "
      "TEXT NOT NULL, revision TEXT NOT NULL, config TEXT NOT NULL, identity TEXT NOT NULL, status TEXT NOT NULL, "
      "outcome TEXT NOT NULL); PRAGMA application_id = 1836017012; PRAGMA user_version = 1;"));
  for (const std::string model : {"first", "second", "damaged"}) {
    Identity i = identity();
    i.problem.model = model;
    auto insert = database->prepare(
        "INSERT INTO results (key, created, model, target, problem, workload, tokens, backend, revision, config, "
        "identity, status, outcome) VALUES (?, '2026-01-01T00:00:00Z', ?, ?, ?, ?, ?, ?, 'r', ?, ?, 'ok', ?)");
    ASSERT_TRUE(insert);
    insert->bind("old key " + model).bind(model).bind(i.target.name).bind(dump_json(to_json(i.problem)));
    insert->bind(dump_json(to_json(Workload{}))).bind(std::int64_t{1}).bind(candidate().backend);
    insert->bind(dump_json(to_json(candidate().config)));
    insert->bind(model == "damaged" ? "[" : dump_json(to_json(i)));
    ASSERT_TRUE(insert->bind(dump_json(to_json(timed({model == "second" ? 2.0 : 1.0})))).run());
  }
}

TEST_F(StoreTest, AnOlderFileIsBroughtUpToDate) {
  write_layout_1(path());
  for (int round = 0; round < 2; ++round) {
    Store store = open(path());
    const auto found = *store.find(identity(), {}, candidate(), "r");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->samples_us, std::vector<double>{2});  // the newer of the two
    EXPECT_EQ(store.list({})->size(), 3U);
    ASSERT_TRUE(store.add_ceilings({}, {}));
  }
  EXPECT_EQ(*Database::open(path(), 1000)->number("PRAGMA user_version"), 2);
}

TEST_F(StoreTest, ANewerFileIsRefusedAndLeftAlone) {
  { (void)open(path()); }
  {
    auto database = Database::open(path(), 1000);
    ASSERT_TRUE(database->execute("PRAGMA user_version = 99; PRAGMA journal_mode = DELETE;"));
  }
  const std::string before = bytes_of(path());
  const auto store = Store::open(path());
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().what.find("newer moetune (layout 99, this one knows 2)"), std::string::npos)
      << store.error().what;
  EXPECT_NE(store.error().what.find(path()), std::string::npos);
  EXPECT_FALSE(store.error().hints.empty());
  EXPECT_EQ(bytes_of(path()), before);
}

TEST_F(StoreTest, AnotherProgramsDatabaseIsRefusedAndLeftAlone) {
  for (const char* sql : {"CREATE TABLE cookies (a)", "PRAGMA application_id = 77",
                          "PRAGMA user_version = 2; CREATE TABLE results (key)", "PRAGMA user_version = 1"}) {
    fs::remove(path());
    ASSERT_TRUE(Database::open(path(), 1000)->execute(sql));
    const std::string before = bytes_of(path());
    const auto store = Store::open(path());
    ASSERT_FALSE(store) << sql;
    EXPECT_NE(store.error().what.find("another program"), std::string::npos) << store.error().what;
    EXPECT_FALSE(store.error().hints.empty());
    EXPECT_EQ(bytes_of(path()), before) << sql;
  }
}

TEST_F(StoreTest, WhatIsNoDatabaseIsRefusedAndLeftAlone) {
  ASSERT_TRUE(write_file(path("text"), std::string(5000, 'x')));
  ASSERT_TRUE(write_file(path("short"), "SQLite format 3"));
  for (const auto& name : {"text", "short"}) {
    const std::string before = bytes_of(path(name));
    const auto store = Store::open(path(name));
    ASSERT_FALSE(store) << name;
    EXPECT_NE(store.error().what.find(path(name)), std::string::npos);
    EXPECT_FALSE(store.error().hints.empty());
    EXPECT_EQ(bytes_of(path(name)), before);
  }
  EXPECT_FALSE(Store::open(folder_.string()));         // a folder
  EXPECT_FALSE(Store::open(path("text") + "/inner"));  // below a file
}

/// Overwrites a part of the file at each of many places: whatever that hits, the answer is a result or an Error.
TEST_F(StoreTest, ADamagedFileNeverCrashes) {
  {
    Store store = open(path());
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(store.add(identity(), {}, candidate(i), "r", failed(OutcomeStatus::nan)));
  }
  const std::string whole = bytes_of(path());
  ASSERT_GT(whole.size(), 40'000U);
  int errors = 0;
  for (std::size_t at = 0; at < whole.size(); at += whole.size() / 40) {
    for (const bool cut : {false, true}) {
      std::string damaged = whole.substr(0, cut ? at : whole.size());
      if (!cut)
        for (std::size_t i = at; i < std::min(at + 700, damaged.size()); ++i) damaged[i] = static_cast<char>(i * 37);
      const std::string file = path("damaged");
      for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(file + suffix);
      ASSERT_TRUE(write_file(file, damaged));
      auto store = Store::open(file);
      if (!store) {
        ++errors;
        EXPECT_FALSE(store.error().hints.empty()) << store.error().what;
        continue;
      }
      const auto listed = store->list({});
      const auto found = store->find(identity(), {}, candidate(1), "r");
      const auto added = store->add(identity(), {}, candidate(1000), "r", timed({1}));
      errors += !listed || !found || !added ? 1 : 0;
    }
  }
  EXPECT_GE(errors, 40);
}

// --------------------------------------------------------------------------------------------- several processes

/// Runs `work` in a child; its return value is the exit code.
pid_t in_child(const std::function<int()>& work) {
  const pid_t pid = fork();
  if (pid == 0) _exit(work());
  return pid;
}

int exit_code_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST_F(StoreTest, ManyProcessesCreateAndWriteAtOnce) {
  constexpr int kProcesses = 4, kResults = 15;
  for (int round = 0; round < 4; ++round) {
    const std::string file = path("shared" + std::to_string(round));
    int gate[2];
    ASSERT_EQ(pipe(gate), 0);
    std::vector<pid_t> children;
    for (int p = 0; p < kProcesses; ++p)
      children.push_back(in_child([&] {
        char byte = 0;
        close(gate[1]);
        (void)!read(gate[0], &byte, 1);  // all start when the parent closes its end
        auto store = Store::open(file);
        if (!store) return 1;
        for (int i = 0; i < kResults; ++i)
          if (!store->add(identity(), {}, candidate(100 * p + i), "r", timed({1.0 + i}))) return 2;
        return 0;
      }));
    close(gate[0]);
    close(gate[1]);
    for (const pid_t child : children) EXPECT_EQ(exit_code_of(child), 0);
    Store store = open(file);
    EXPECT_EQ(store.list({})->size(), static_cast<std::size_t>(kProcesses * kResults));
  }
}

TEST_F(StoreTest, WhatWasAddedBeforeKillIsThere) {
  for (int round = 0; round < 5; ++round) {
    const std::string file = path("killed" + std::to_string(round));
    int acknowledged[2];
    ASSERT_EQ(pipe(acknowledged), 0);
    const pid_t child = in_child([&] {
      close(acknowledged[0]);
      auto store = Store::open(file);
      for (int i = 0; store; ++i) {
        if (!store->add(identity(), {}, candidate(i), "r", timed({1.0 + i}))) break;
        if (write(acknowledged[1], "+", 1) != 1) break;
      }
      return 1;
    });
    close(acknowledged[1]);
    std::int64_t count = 0;
    char byte = 0;
    while (count < 5 + 3 * round && read(acknowledged[0], &byte, 1) == 1) ++count;
    kill(child, SIGKILL);
    while (read(acknowledged[0], &byte, 1) == 1) ++count;  // what it managed before the signal came
    close(acknowledged[0]);
    EXPECT_EQ(exit_code_of(child), 1000 + SIGKILL);
    Store store = open(file);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto found = store.find(identity(), {}, candidate(i), "r");
      ASSERT_TRUE(found && *found) << "result " << i << " of " << count << " is lost";
      EXPECT_EQ((*found)->samples_us, std::vector<double>{1.0 + static_cast<double>(i)});
    }
    EXPECT_LE(store.list({})->size(), static_cast<std::size_t>(count + 1));  // one may be written and not acknowledged
    ASSERT_TRUE(store.add(identity(), {}, candidate(-1), "r", timed({1})));
    auto check = Database::open(file, 1000)->prepare("PRAGMA integrity_check");
    ASSERT_TRUE(*check->step());
    EXPECT_EQ(check->text(0), "ok");
  }
}

TEST_F(StoreTest, KilledWhileCreating) {
  for (int round = 0; round < 8; ++round) {
    const std::string file = path("new" + std::to_string(round));
    const pid_t child = in_child([&] { return Store::open(file) ? 0 : 1; });
    usleep(static_cast<useconds_t>(400 * round));
    kill(child, SIGKILL);
    (void)exit_code_of(child);
    Store store = open(file);
    ASSERT_TRUE(store.add(identity(), {}, candidate(), "r", timed({1})));
  }
}

}  // namespace
}  // namespace moetune
