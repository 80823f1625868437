#include "tune/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <utility>
#include <vector>

namespace moetune {
namespace {

Error error_of(sqlite3* database) {
  const std::string what = fmt::format("SQLite: {}", database == nullptr ? "out of memory" : sqlite3_errmsg(database));
  switch (database == nullptr ? SQLITE_NOMEM : sqlite3_errcode(database)) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return {what, {"move the file away to start afresh, or name another one with --store; it was left as it is"}};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {what, {"another process holds the file; try again, or name another one with --store"}};
    case SQLITE_FULL:
    case SQLITE_IOERR:
      return {what, {"make room on the disk, or name a file on another one with --store"}};
    default:
      return {what, {"name another file with --store, or another folder with MOETUNE_HOME"}};
  }
}

}  // namespace

void Statement::Finalizer::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

void Statement::note(int code) {
  if (code_ == SQLITE_OK) code_ = code;
}

Statement& Statement::bind(std::string_view text) {
  note(sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind(std::int64_t number) {
  note(sqlite3_bind_int64(statement_.get(), ++bound_, number));
  return *this;
}

Statement& Statement::bind(double number) {
  note(sqlite3_bind_double(statement_.get(), ++bound_, number));
  return *this;
}

Result<bool> Statement::step() {
  if (code_ != SQLITE_OK) return fail(fmt::format("SQLite: {}", sqlite3_errstr(code_)));
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return tl::unexpected(error_of(database_));
}

Status Statement::run() {
  MOETUNE_TRY(const bool row, step());
  return row ? fail("SQLite: a row where none was expected") : Status();
}

std::string Statement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (data == nullptr) return "";
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::int64_t Statement::number(int column) const { return sqlite3_column_int64(statement_.get(), column); }

double Statement::real(int column) const { return sqlite3_column_double(statement_.get(), column); }

void Database::Closer::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Result<Database> Database::open(const std::string& path, int busy_ms) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  Database database(raw);
  if (code != SQLITE_OK) return tl::unexpected(error_of(raw));
  sqlite3_busy_timeout(raw, busy_ms);
  return database;
}

Status Database::execute(const std::string& sql) {
  if (sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return tl::unexpected(error_of(database_.get()));
}

Result<Statement> Database::prepare(const std::string& sql) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(database_.get(), sql.data(), static_cast<int>(sql.size()), &raw, nullptr) != SQLITE_OK)
    return tl::unexpected(error_of(database_.get()));
  return Statement(database_.get(), raw);
}

Result<std::int64_t> Database::number(const std::string& sql) {
  MOETUNE_TRY(Statement statement, prepare(sql));
  MOETUNE_TRY(const bool row, statement.step());
  return row ? statement.number(0) : 0;
}

Result<Transaction> Transaction::begin(Database& database, Kind kind) {
  MOETUNE_CHECK(database.execute(kind == Kind::write ? "BEGIN IMMEDIATE" : "BEGIN"));
  return Transaction(database);
}

Transaction::~Transaction() {
  if (database_ != nullptr) (void)database_->execute("ROLLBACK");
}

Status Transaction::commit() {
  MOETUNE_CHECK(database_->execute("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace moetune
