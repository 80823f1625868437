// A thin layer over SQLite's C interface: handles that close themselves, errors as values. Internal to tune/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace moetune {

/// A prepared statement with values bound in order.
class Statement {
 public:
  Statement& bind(std::string_view text);
  Statement& bind(std::int64_t number);
  Statement& bind(double number);
  /// The next row; false: no more. Errors of bind() come out here.
  [[nodiscard]] Result<bool> step();
  /// step() of a statement that yields no rows.
  [[nodiscard]] Status run();

  // Of the row that step() stopped at; columns count from 0.
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] std::int64_t number(int column) const;
  [[nodiscard]] double real(int column) const;

 private:
  friend class Database;
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const;
  };
  Statement(sqlite3* database, sqlite3_stmt* raw) : database_(database), statement_(raw) {}
  void note(int code);

  sqlite3* database_;
  std::unique_ptr<sqlite3_stmt, Finalizer> statement_;
  int bound_ = 0;
  int code_ = 0;  // of the first bind that failed
};

/// One connection. Not shared between threads nor over fork().
class Database {
 public:
  /// Opens or creates; waits `busy_ms` for other processes' locks.
  [[nodiscard]] static Result<Database> open(const std::string& path, int busy_ms);

  [[nodiscard]] Status execute(const std::string& sql);
  [[nodiscard]] Result<Statement> prepare(const std::string& sql);
  /// The single number that a query yields, e.g. of "PRAGMA user_version"; 0 where it yields nothing.
  [[nodiscard]] Result<std::int64_t> number(const std::string& sql);

 private:
  struct Closer {
    void operator()(sqlite3* database) const;
  };
  explicit Database(sqlite3* raw) : database_(raw) {}
  std::unique_ptr<sqlite3, Closer> database_;
};

/// Everything executed between begin() and commit(), or nothing of it.
class Transaction {
 public:
  /// A writing one waits for other writers now; a reading one sees one state throughout.
  enum class Kind { read, write };
  [[nodiscard]] static Result<Transaction> begin(Database& database, Kind kind);
  Transaction(Transaction&& other) noexcept : database_(other.database_) { other.database_ = nullptr; }
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  [[nodiscard]] Status commit();

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;  // null: committed or moved from
};

}  // namespace moetune
