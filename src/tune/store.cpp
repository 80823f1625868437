#include "tune/store.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <ctime>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"

namespace moetune {
namespace {

constexpr int kSchemaVersion = 1;
constexpr int kApplicationId = 0x6D6F6574;  // "moet": tells our file from another program's
constexpr int kBusyMs = 10'000;

constexpr const char* kSchema = R"sql(
CREATE TABLE results (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  created TEXT NOT NULL,
  model TEXT NOT NULL,
  target TEXT NOT NULL,
  problem TEXT NOT NULL,
  workload TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  backend TEXT NOT NULL,
  revision TEXT NOT NULL,
  config TEXT NOT NULL,
  identity TEXT NOT NULL,
  status TEXT NOT NULL,
  outcome TEXT NOT NULL
);
CREATE INDEX results_by_model ON results (model, tokens, backend);
)sql";

/// A prepared statement with values bound in order.
class Statement {
 public:
  static Result<Statement> prepare(sqlite3* database, const char* sql) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(database, sql, -1, &raw, nullptr) != SQLITE_OK)
      return fail(fmt::format("the result store: {}", sqlite3_errmsg(database)));
    return Statement(database, raw);
  }
  void bind(std::string_view text) {
    sqlite3_bind_text(statement_.get(), ++bound_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
  void bind(std::int64_t number) { sqlite3_bind_int64(statement_.get(), ++bound_, number); }
  /// The next row; false: no more.
  Result<bool> step() {
    const int code = sqlite3_step(statement_.get());
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    return fail(fmt::format("the result store: {}", sqlite3_errmsg(database_)));
  }
  [[nodiscard]] std::string text(int column) const {
    const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
    return data == nullptr
               ? ""
               : std::string(data, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column)));
  }
  [[nodiscard]] std::int64_t number(int column) const { return sqlite3_column_int64(statement_.get(), column); }

 private:
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  Statement(sqlite3* database, sqlite3_stmt* raw) : database_(database), statement_(raw) {}
  sqlite3* database_;
  std::unique_ptr<sqlite3_stmt, Finalizer> statement_;
  int bound_ = 0;
};

Status execute(sqlite3* database, const std::string& sql) {
  char* message = nullptr;
  if (sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &message) == SQLITE_OK) return {};
  const std::string what = message == nullptr ? sqlite3_errmsg(database) : message;
  sqlite3_free(message);
  return fail("the result store: " + what);
}

Result<std::int64_t> pragma(sqlite3* database, const char* name) {
  MOETUNE_TRY(Statement statement, Statement::prepare(database, fmt::format("PRAGMA {}", name).c_str()));
  MOETUNE_TRY(const bool row, statement.step());
  return row ? statement.number(0) : 0;
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string key_of(const Identity& identity, const Workload& workload, const Candidate& candidate,
                   std::string_view revision) {
  return content_hash(dump_json({to_json(identity), to_json(workload), to_json(candidate), std::string(revision)}));
}

template <class T>
Status read_field(const std::string& text, T& value) {
  MOETUNE_TRY(const Json json, parse_json(text));
  return from_json(json, value);
}

}  // namespace

void Store::Closer::operator()(sqlite3* database) const { sqlite3_close(database); }

Store::Store(std::unique_ptr<sqlite3, Closer> database) : database_(std::move(database)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

std::string Store::default_path() { return cache_folder() + "/results.sqlite"; }

Result<Store> Store::open(const std::string& path) {
  std::error_code ignored;
  const auto parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, ignored);
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  Store store{std::unique_ptr<sqlite3, Closer>(raw)};
  if (code != SQLITE_OK)
    return fail(
        fmt::format("cannot open the result store {}: {}", path, raw == nullptr ? "no memory" : sqlite3_errmsg(raw)),
        {"name another file with --store, or another folder with MOETUNE_HOME"});
  sqlite3_busy_timeout(raw, kBusyMs);
  if (auto status = store.prepare_schema(path); !status) {
    Error error = std::move(status).error();
    if (error.hints.empty()) error.hints = {"name another file with --store; this one is left as it is"};
    return fail_in(path, std::move(error));
  }
  return store;
}

Status Store::prepare_schema(const std::string& path) {
  sqlite3* database = database_.get();
  MOETUNE_TRY(const std::int64_t application, pragma(database, "application_id"));
  MOETUNE_TRY(const std::int64_t version, pragma(database, "user_version"));
  MOETUNE_TRY(const std::int64_t tables, pragma(database, "schema_version"));
  if (application != kApplicationId && (application != 0 || tables != 0))
    return fail("this is a database of another program");
  if (version > kSchemaVersion)
    return fail(fmt::format("written by a newer moetune (schema {}, this one knows {})", version, kSchemaVersion),
                {"update moetune, or name another file with --store", fmt::format("{} is left as it is", path)});
  MOETUNE_CHECK(execute(database, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"));
  if (version == kSchemaVersion) return {};
  // Two processes may meet here: the one that waits finds the schema made.
  MOETUNE_CHECK(execute(database, "BEGIN IMMEDIATE"));
  MOETUNE_TRY(const std::int64_t made, pragma(database, "user_version"));
  Status status;
  if (made != kSchemaVersion)
    status = execute(database, fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}; {}", kApplicationId,
                                           kSchemaVersion, kSchema));
  if (!status) {
    (void)execute(database, "ROLLBACK");
    return status;
  }
  return execute(database, "COMMIT");
}

Result<std::optional<Outcome>> Store::find(const Identity& identity, const Workload& workload,
                                           const Candidate& candidate, std::string_view revision) {
  MOETUNE_TRY(Statement statement, Statement::prepare(database_.get(), "SELECT outcome FROM results WHERE key = ?"));
  statement.bind(key_of(identity, workload, candidate, revision));
  MOETUNE_TRY(const bool row, statement.step());
  if (!row) return std::optional<Outcome>();
  Outcome outcome;
  MOETUNE_CHECK(read_field(statement.text(0), outcome));
  return std::optional<Outcome>(std::move(outcome));
}

Status Store::add(const Identity& identity, const Workload& workload, const Candidate& candidate,
                  std::string_view revision, const Outcome& outcome) {
  if (outcome.status == OutcomeStatus::skipped) return {};
  MOETUNE_TRY(Statement statement,
              Statement::prepare(database_.get(),
                                 "INSERT OR REPLACE INTO results (key, created, model, target, problem, workload, "
                                 "tokens, backend, revision, config, "
                                 "identity, status, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  statement.bind(key_of(identity, workload, candidate, revision));
  statement.bind(now_utc());
  statement.bind(identity.problem.model);
  statement.bind(identity.target.name);
  statement.bind(dump_json(to_json(identity.problem)));
  statement.bind(dump_json(to_json(workload)));
  statement.bind(workload.tokens);
  statement.bind(candidate.backend);
  statement.bind(revision);
  statement.bind(dump_json(to_json(candidate.config)));
  statement.bind(dump_json(to_json(identity)));
  statement.bind(to_string(outcome.status));
  statement.bind(dump_json(to_json(outcome)));
  MOETUNE_TRY(const bool row, statement.step());
  (void)row;
  return {};
}

Result<std::vector<StoredResult>> Store::list(const Filter& filter) {
  std::string sql =
      "SELECT id, model, target, problem, workload, backend, config, revision, outcome, created FROM results WHERE "
      "instr(lower(model), lower(?)) > 0";
  if (!filter.backend.empty()) sql += " AND backend = ?";
  if (filter.tokens) sql += " AND tokens = ?";
  if (filter.status) sql += " AND status = ?";
  sql += " ORDER BY id DESC LIMIT ?";
  MOETUNE_TRY(Statement statement, Statement::prepare(database_.get(), sql.c_str()));
  statement.bind(filter.model);
  if (!filter.backend.empty()) statement.bind(filter.backend);
  if (filter.tokens) statement.bind(*filter.tokens);
  if (filter.status) statement.bind(to_string(*filter.status));
  statement.bind(filter.limit);
  std::vector<StoredResult> results;
  while (true) {
    MOETUNE_TRY(const bool row, statement.step());
    if (!row) return results;
    StoredResult result;
    result.id = statement.number(0);
    result.model = statement.text(1);
    result.target = statement.text(2);
    MOETUNE_CHECK(read_field(statement.text(3), result.problem));
    MOETUNE_CHECK(read_field(statement.text(4), result.workload));
    result.candidate.backend = statement.text(5);
    MOETUNE_CHECK(read_field(statement.text(6), result.candidate.config));
    result.revision = statement.text(7);
    MOETUNE_CHECK(read_field(statement.text(8), result.outcome));
    result.created = statement.text(9);
    results.push_back(std::move(result));
  }
}

}  // namespace moetune
