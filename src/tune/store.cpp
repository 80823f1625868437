#include "tune/store.h"

#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "tune/sqlite.h"
#include "tune/store_schema.h"

namespace moetune {
namespace {

constexpr int kBusyMs = 10'000;

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

template <class T>
std::string text_of(const T& value) {
  return dump_json(to_json(value));
}

/// A JSON column of a row. What cannot be read was not written by this program.
template <class T>
Status read_column(const Statement& row, int column, T& value) {
  const auto json = parse_json(row.text(column));
  Status status = json ? from_json(*json, value) : Status(tl::unexpected(json.error()));
  if (status) return status;
  Error error = std::move(status).error();
  error.hints = {"the file was changed by another program; name another one with --store"};
  return fail_in("a row that cannot be read", std::move(error));
}

std::string race_key(const Identity& identity, const Workload& workload, std::span<const Finalist> finalists) {
  Json json = {identity_content(identity), to_json(workload)};
  for (const auto& finalist : finalists) json.push_back({to_json(finalist.candidate), finalist.revision});
  return content_hash(dump_json(json));
}

std::string target_key(const Target& target) {
  Target content = target;
  content.source.clear();
  return cache_key(content);
}

/// The WHERE clause of a filter, with placeholders for bind_filter.
std::string where(const Store::Filter& filter, bool with_status) {
  std::string sql = " WHERE instr(lower(model), lower(?)) > 0";
  if (!filter.backend.empty()) sql += " AND backend = ?";
  if (filter.tokens) sql += " AND tokens = ?";
  if (with_status && filter.status) sql += " AND status = ?";
  return sql + " ORDER BY id DESC LIMIT ?";
}

void bind_filter(Statement& statement, const Store::Filter& filter, bool with_status) {
  statement.bind(filter.model);
  if (!filter.backend.empty()) statement.bind(filter.backend);
  if (filter.tokens) statement.bind(*filter.tokens);
  if (with_status && filter.status) statement.bind(to_string(*filter.status));
  statement.bind(filter.limit);
}

Result<StoredResult> read_result(const Statement& row) {
  StoredResult result;
  result.id = row.number(0);
  result.model = row.text(1);
  result.target = row.text(2);
  MOETUNE_CHECK(read_column(row, 3, result.problem));
  MOETUNE_CHECK(read_column(row, 4, result.workload));
  result.candidate.backend = row.text(5);
  MOETUNE_CHECK(read_column(row, 6, result.candidate.config));
  result.revision = row.text(7);
  MOETUNE_CHECK(read_column(row, 8, result.outcome));
  result.created = row.text(9);
  return result;
}

}  // namespace

Store::Store(Database database) : database_(std::make_unique<Database>(std::move(database))) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

std::string Store::default_path() { return cache_folder() + "/results.sqlite"; }

Result<Store> Store::open(const std::string& path) {
  std::error_code ignored;  // opening says what is wrong
  const auto parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, ignored);
  const std::string where = "result store " + path;
  auto database = Database::open(path, kBusyMs);
  if (!database) return fail_in(where, std::move(database).error());
  Status status = prepare_schema(*database);
  // A commit is on disk when it returns: the log is synced each time, and merged into the file now and then.
  if (status) status = database->execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
  if (!status) return fail_in(where, std::move(status).error());
  return Store(std::move(*database));
}

Result<std::optional<Outcome>> Store::find(const Identity& identity, const Workload& workload,
                                           const Candidate& candidate, std::string_view revision) {
  MOETUNE_TRY(Statement row, database_->prepare("SELECT outcome FROM results WHERE key = ?"));
  row.bind(result_key(identity, workload, candidate, revision));
  MOETUNE_TRY(const bool found, row.step());
  if (!found) return std::nullopt;
  Outcome outcome;
  MOETUNE_CHECK(read_column(row, 0, outcome));
  if (outcome.status == OutcomeStatus::throttled) return std::nullopt;
  return outcome;
}

Status Store::add(const Identity& identity, const Workload& workload, const Candidate& candidate,
                  std::string_view revision, const Outcome& outcome) {
  if (outcome.status == OutcomeStatus::skipped) return {};
  MOETUNE_TRY(
      Statement insert,
      database_->prepare("INSERT OR REPLACE INTO results (key, created, model, target, problem, workload, tokens, "
                         "backend, revision, config, identity, status, outcome) "
                         "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  insert.bind(result_key(identity, workload, candidate, revision)).bind(now_utc());
  insert.bind(identity.problem.model).bind(identity.target.name).bind(text_of(identity.problem));
  insert.bind(text_of(workload)).bind(workload.tokens);
  insert.bind(candidate.backend).bind(revision).bind(text_of(candidate.config)).bind(text_of(identity));
  return insert.bind(to_string(outcome.status)).bind(text_of(outcome)).run();
}

Result<std::optional<std::vector<Outcome>>> Store::find_race(const Identity& identity, const Workload& workload,
                                                             std::span<const Finalist> finalists) {
  MOETUNE_TRY(Statement row, database_->prepare("SELECT outcomes FROM races WHERE key = ?"));
  row.bind(race_key(identity, workload, finalists));
  MOETUNE_TRY(const bool found, row.step());
  if (!found) return std::nullopt;
  std::vector<Outcome> outcomes;
  MOETUNE_CHECK(read_column(row, 0, outcomes));
  if (outcomes.size() != finalists.size()) return std::nullopt;
  return outcomes;
}

Status Store::add_race(const Identity& identity, const Workload& workload, std::span<const Finalist> finalists,
                       std::span<const Outcome> outcomes) {
  MOETUNE_TRY(Statement insert,
              database_->prepare("INSERT OR REPLACE INTO races (key, created, outcomes) VALUES (?, ?, ?)"));
  insert.bind(race_key(identity, workload, finalists)).bind(now_utc());
  return insert.bind(text_of(std::vector<Outcome>(outcomes.begin(), outcomes.end()))).run();
}

Status Store::add_winner(const Identity& identity, const StoredWinner& winner) {
  StoredWinner row = winner;
  row.model = identity.problem.model;
  row.target = identity.target.name;
  row.problem = identity.problem;
  row.created = now_utc();
  MOETUNE_TRY(Statement insert,
              database_->prepare("INSERT OR REPLACE INTO winners (key, created, model, tokens, backend, identity, "
                                 "winner) VALUES (?, ?, ?, ?, ?, ?, ?)"));
  insert.bind(content_hash(dump_json({row.model, identity_content(identity), to_json(row.workload)})));
  insert.bind(row.created).bind(row.model).bind(row.workload.tokens).bind(row.winner.backend);
  return insert.bind(text_of(identity)).bind(text_of(row)).run();
}

Status Store::add_ceilings(const Target& target, const Ceilings& ceilings) {
  MOETUNE_TRY(Statement insert,
              database_->prepare("INSERT INTO ceilings (key, created, target, ceilings) VALUES (?, ?, ?, ?)"));
  return insert.bind(target_key(target)).bind(now_utc()).bind(target.name).bind(text_of(ceilings)).run();
}

Result<std::optional<StoredCeilings>> Store::find_ceilings(const Target& target) {
  MOETUNE_TRY(Statement row,
              database_->prepare("SELECT ceilings, created FROM ceilings WHERE key = ? ORDER BY id DESC LIMIT 1"));
  row.bind(target_key(target));
  MOETUNE_TRY(const bool found, row.step());
  if (!found) return std::nullopt;
  StoredCeilings stored;
  MOETUNE_CHECK(read_column(row, 0, stored.ceilings));
  stored.created = row.text(1);
  return stored;
}

Result<std::vector<StoredResult>> Store::list(const Filter& filter) {
  MOETUNE_TRY(Statement rows, database_->prepare("SELECT id, model, target, problem, workload, backend, config, "
                                                 "revision, outcome, created FROM results" +
                                                 where(filter, true)));
  bind_filter(rows, filter, true);
  std::vector<StoredResult> results;
  while (true) {
    MOETUNE_TRY(const bool row, rows.step());
    if (!row) return results;
    MOETUNE_TRY(StoredResult result, read_result(rows));
    results.push_back(std::move(result));
  }
}

Result<std::vector<StoredWinner>> Store::list_winners(const Filter& filter) {
  MOETUNE_TRY(Statement rows, database_->prepare("SELECT winner FROM winners" + where(filter, false)));
  bind_filter(rows, filter, false);
  std::vector<StoredWinner> winners;
  while (true) {
    MOETUNE_TRY(const bool row, rows.step());
    if (!row) return winners;
    MOETUNE_CHECK(read_column(rows, 0, winners.emplace_back()));
  }
}

}  // namespace moetune
