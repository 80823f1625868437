#include "backend/backend.h"

#include <fmt/format.h>

#include "base/clock.h"

namespace moetune {

Result<std::vector<double>> Session::time(std::span<const Call> calls) {
  std::vector<double> us;
  us.reserve(calls.size());
  for (const auto& call : calls) {
    const double start = now_s();
    MOETUNE_CHECK(run(call));
    us.push_back((now_s() - start) * 1e6);
  }
  return us;
}

std::optional<Reason> memory_reason(const Problem& problem, const Target& target, std::string_view source) {
  if (!target.memory_bytes || expert_bytes(problem) <= *target.memory_bytes / problem.experts) return std::nullopt;
  constexpr double kGigabyte = 1e9;
  const double weights = static_cast<double>(expert_bytes(problem)) * static_cast<double>(problem.experts);
  return Reason{ReasonCode::memory,
                fmt::format("{:.1f} GB of memory", static_cast<double>(*target.memory_bytes) / kGigabyte),
                fmt::format("{:.1f} GB for the weights", weights / kGigabyte),
                "cut the layer further: a larger --tp or --ep", std::string(source)};
}

const Backend* Registry::find(std::string_view id) const {
  for (const auto& backend : backends_)
    if (backend->id() == id) return backend.get();
  return nullptr;
}

const Device* Registry::find(TargetKind kind) const {
  for (const auto& device : devices_)
    if (device->kind() == kind) return device.get();
  return nullptr;
}

}  // namespace moetune
