#include "tune/recording.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "base/json.h"
#include "measure/stats.h"

namespace moetune {
namespace {

std::vector<std::int64_t> values_of(const Config& config) {
  std::vector<std::int64_t> values;
  for (const auto& entry : config.values) values.push_back(entry.second);
  return values;
}

Config config_of(const RecordedPart& part, const std::vector<std::int64_t>& values) {
  Config config;
  for (std::size_t a = 0; a < part.axes.size(); ++a) config.values.emplace_back(part.axes[a].name, values[a]);
  return config;
}

RecordedPart record_part(const Backend& backend, const TuneRequest& request, const TuneRow& row) {
  const auto& [problem, target] = std::tie(request.identity.problem, request.identity.target);
  const std::int64_t tokens = row.workload.tokens;
  RecordedPart part;
  part.backend = backend.id();
  for (const auto& axis : backend.space(problem, target, tokens).axes) part.axes.push_back({axis.name, axis.values});
  part.first = values_of(backend.default_config(problem, target, tokens));
  for (const auto& evaluated : row.evaluated) {
    if (evaluated.candidate.backend != part.backend) continue;
    const bool ok = evaluated.outcome.status == OutcomeStatus::ok;
    const Summary time = ok ? summarize(evaluated.outcome.samples_us) : Summary{};
    part.outcomes.push_back(
        {values_of(evaluated.candidate.config), evaluated.outcome.status, time.median, time.spread});
  }
  return part;
}

Status check_part(const RecordedPart& part) {
  std::set<std::vector<std::int64_t>> seen;
  for (const auto& outcome : part.outcomes) {
    const auto refuse = [&](const std::string& why) {
      return fail(fmt::format("{} [{}]: {}", part.backend, fmt::join(outcome.config, ", "), why));
    };
    if (outcome.config.size() != part.axes.size())
      return refuse(fmt::format("{} values for {} axes", outcome.config.size(), part.axes.size()));
    for (std::size_t a = 0; a < part.axes.size(); ++a)
      if (const auto& values = part.axes[a].values;
          std::find(values.begin(), values.end(), outcome.config[a]) == values.end())
        return refuse(fmt::format("{} is no value of axis '{}'", outcome.config[a], part.axes[a].name));
    if (!seen.insert(outcome.config).second) return refuse("recorded twice");
    if (outcome.status == OutcomeStatus::ok && !(std::isfinite(outcome.us_median) && outcome.us_median > 0))
      return refuse("ok without a positive time");
  }
  if (!seen.contains(part.first))
    return fail(fmt::format("{}: its default [{}] is not recorded", part.backend, fmt::join(part.first, ", ")));
  return {};
}

Status check_recording(const Recording& recording) {
  if (recording.version != Recording::kVersion)
    return fail(fmt::format("recording of version {}, this one knows {}", recording.version, Recording::kVersion),
                {"record it again with `moetune tune --strategy exhaustive`"});
  if (recording.rows.empty()) return fail("the recording has no rows");
  for (const auto& row : recording.rows) {
    const std::string where = fmt::format("row of {} tokens", row.workload.tokens);
    for (const auto& part : row.parts)
      if (auto status = check_part(part); !status) return fail_in(where, std::move(status).error());
    if (!std::isfinite(best_us(row))) return fail(where + ": no candidate ran");
  }
  return {};
}

}  // namespace

Recording record(const TuneRequest& request, const TuneReport& report) {
  Recording recording;
  recording.identity = request.identity;
  for (const auto& row : report.rows) {
    RecordedRow recorded{row.workload, row.exhausted, {}};
    for (const Backend* backend : request.backends)
      if (backend->why_not(request.identity.problem, request.identity.target).empty())
        recorded.parts.push_back(record_part(*backend, request, row));
    recording.rows.push_back(std::move(recorded));
  }
  return recording;
}

Result<Recording> read_recording(const std::string& path) {
  MOETUNE_TRY(const Json json, read_json(path));
  Recording recording;
  recording.version = 0;  // one that does not say is not known
  auto status = from_json(json, recording);
  if (status) status = check_recording(recording);
  if (!status) return fail_in(path, std::move(status).error());
  return recording;
}

SearchSpace search_space(const RecordedRow& row) {
  SearchSpace space;
  for (const auto& part : row.parts) {
    Space axes;
    for (const auto& axis : part.axes) axes.axes.push_back({axis.name, axis.values, ""});
    const auto admitted = std::make_shared<std::set<std::vector<std::int64_t>>>();
    for (const auto& outcome : part.outcomes) admitted->insert(outcome.config);
    axes.admits = [admitted](const Config& config) { return admitted->contains(values_of(config)); };
    space.parts.push_back({part.backend, std::move(axes), config_of(part, part.first)});
  }
  return space;
}

double best_us(const RecordedRow& row) {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& part : row.parts)
    for (const auto& outcome : part.outcomes)
      if (outcome.status == OutcomeStatus::ok) best = std::min(best, outcome.us_median);
  return best;
}

std::size_t candidates(const RecordedRow& row) {
  std::size_t count = 0;
  for (const auto& part : row.parts) count += part.outcomes.size();
  return count;
}

std::vector<double> replay(const RecordedRow& row, StrategyKind kind, std::uint64_t seed, std::size_t evaluations) {
  std::map<std::pair<std::string, std::vector<std::int64_t>>, double> costs;  // of what ran
  for (const auto& part : row.parts)
    for (const auto& outcome : part.outcomes)
      if (outcome.status == OutcomeStatus::ok) costs[{part.backend, outcome.config}] = outcome.us_median;
  const auto strategy = make_strategy(kind, search_space(row), seed);
  std::vector<double> best;
  while (best.size() < evaluations) {
    const auto candidate = strategy->next();
    if (!candidate) break;
    const auto found = costs.find({candidate->backend, values_of(candidate->config)});
    strategy->tell(*candidate, found == costs.end() ? std::nullopt : std::optional(found->second));
    best.push_back(strategy->best() ? strategy->best()->second : std::numeric_limits<double>::infinity());
  }
  return best;
}

}  // namespace moetune
