#include "tune/store_schema.h"

#include <fmt/format.h>

#include <array>
#include <vector>

namespace moetune {
namespace {

constexpr std::int64_t kApplicationId = 0x6D6F6574;  // "moet": tells our file from another program's

// Layout 1: one row an outcome. Columns beside the key and the JSON texts are for people and for filters.
Status make_results(Database& database) {
  return database.execute(R"sql(
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
)sql");
}

/// Keys of layout 1 counted the model's name. Where two models with the same layer have a result each, the newer one
/// gets the key; the other stays as it is, for listing.
Status file_by_content(Database& database) {
  struct Row {
    std::int64_t id;
    std::string key;
  };
  std::vector<Row> rows;
  MOETUNE_TRY(
      Statement select,
      database.prepare("SELECT id, identity, workload, backend, config, revision FROM results ORDER BY id DESC"));
  while (true) {
    MOETUNE_TRY(const bool row, select.step());
    if (!row) break;
    Identity identity;
    Workload workload;
    Candidate candidate{select.text(3), {}};
    const auto identity_text = parse_json(select.text(1)), workload_text = parse_json(select.text(2)),
               config_text = parse_json(select.text(4));
    const bool readable = identity_text && workload_text && config_text && from_json(*identity_text, identity) &&
                          from_json(*workload_text, workload) && from_json(*config_text, candidate.config);
    if (readable) rows.push_back({select.number(0), result_key(identity, workload, candidate, select.text(5))});
  }
  for (const auto& row : rows) {
    MOETUNE_TRY(Statement update, database.prepare("UPDATE OR IGNORE results SET key = ? WHERE id = ?"));
    MOETUNE_CHECK(update.bind(row.key).bind(row.id).run());
  }
  return {};
}

// Layout 2: races, winners and ceilings beside the outcomes.
Status add_races_winners_ceilings(Database& database) {
  MOETUNE_CHECK(database.execute(R"sql(
CREATE TABLE races (
  key TEXT PRIMARY KEY,
  created TEXT NOT NULL,
  outcomes TEXT NOT NULL
);
CREATE TABLE winners (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  created TEXT NOT NULL,
  model TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  backend TEXT NOT NULL,
  identity TEXT NOT NULL,
  winner TEXT NOT NULL
);
CREATE TABLE ceilings (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL,
  created TEXT NOT NULL,
  target TEXT NOT NULL,
  ceilings TEXT NOT NULL
);
CREATE INDEX ceilings_by_target ON ceilings (key);
)sql"));
  return file_by_content(database);
}

/// kSteps[v] takes a file of layout v to layout v + 1. Released steps never change.
constexpr std::array kSteps = {make_results, add_races_winners_ceilings};
constexpr std::int64_t kSchemaVersion = kSteps.size();

/// The file's layout, 0 for a new file.
Result<std::int64_t> layout_of(Database& database) {
  MOETUNE_TRY(const std::int64_t application, database.number("PRAGMA application_id"));
  MOETUNE_TRY(const std::int64_t version, database.number("PRAGMA user_version"));
  MOETUNE_TRY(const std::int64_t tables, database.number("SELECT count(*) FROM sqlite_master"));
  const bool empty = application == 0 && version == 0 && tables == 0;
  if (application != kApplicationId && !empty)
    return fail("this is a database of another program",
                {"name another file with --store; this one was left as it is"});
  if (version < 0 || version > kSchemaVersion)
    return fail(fmt::format("written by a newer moetune (layout {}, this one knows {})", version, kSchemaVersion),
                {"update moetune, or name another file with --store; this one was left as it is"});
  return version;
}

}  // namespace

Status prepare_schema(Database& database) {
  {
    MOETUNE_TRY(Transaction reading, Transaction::begin(database, Transaction::Kind::read));
    MOETUNE_TRY(const std::int64_t version, layout_of(database));
    MOETUNE_CHECK(reading.commit());
    if (version == kSchemaVersion) return {};
  }
  // Two processes may meet here: the one that waited finds the work done.
  MOETUNE_TRY(Transaction writing, Transaction::begin(database, Transaction::Kind::write));
  MOETUNE_TRY(const std::int64_t version, layout_of(database));
  for (auto step = static_cast<std::size_t>(version); step < kSteps.size(); ++step)
    MOETUNE_CHECK(kSteps[step](database));
  MOETUNE_CHECK(database.execute(
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {};", kApplicationId, kSchemaVersion)));
  return writing.commit();
}

Json identity_content(const Identity& identity) {
  Identity content = identity;
  content.problem.model.clear();
  content.target.source.clear();
  return to_json(content);
}

std::string result_key(const Identity& identity, const Workload& workload, const Candidate& candidate,
                       std::string_view revision) {
  return content_hash(
      dump_json({identity_content(identity), to_json(workload), to_json(candidate), std::string(revision)}));
}

}  // namespace moetune
