#include "worker/traffic.h"

#include <algorithm>
#include <numeric>

#include "moe/reference.h"

namespace moetune {
namespace {

constexpr std::int64_t kMinCalls = 3;
constexpr std::int64_t kMaxCalls = 64;
constexpr std::int64_t kMaxInputBytes = std::int64_t{512} << 20;

/// Renames the experts of `routing`: those it touches become the least recently used of `order`, which are then the
/// most recently used.
void rename_to_oldest(Routing& routing, std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> renamed(order.size(), -1);
  std::size_t used = 0;
  for (auto& id : routing.ids) {
    if (id < 0) continue;
    auto& name = renamed[static_cast<std::size_t>(id)];
    if (name < 0) name = order[used++];
    id = name;
  }
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(used), order.end());
}

}  // namespace

std::vector<Call> Traffic::calls() {
  std::vector<Call> calls;
  for (std::size_t i = 0; i < routings.size(); ++i) calls.push_back({inputs[i], &routings[i], output});
  return calls;
}

double Traffic::mean_active_experts() const {
  double sum = 0;
  for (const auto& routing : routings) sum += static_cast<double>(routing.active_experts());
  return sum / static_cast<double>(routings.size());
}

double Traffic::mean_pairs() const {
  double sum = 0;
  for (const auto& routing : routings) sum += static_cast<double>(routing.pairs());
  return sum / static_cast<double>(routings.size());
}

Traffic make_traffic(const Problem& problem, const Workload& workload) {
  const std::int64_t call_bytes = std::max<std::int64_t>(1, workload.tokens * problem.hidden * 2);
  const std::int64_t most = std::clamp(kMaxInputBytes / call_bytes, kMinCalls, kMaxCalls);
  Traffic traffic;
  traffic.output.resize(static_cast<std::size_t>(workload.tokens * problem.hidden));
  std::vector<std::int32_t> order(static_cast<std::size_t>(problem.experts));
  std::iota(order.begin(), order.end(), 0);
  std::int64_t touched = 0;
  for (std::int64_t i = 0; i < most && (i < kMinCalls || touched < problem.experts); ++i) {
    const std::uint64_t seed = workload.seed + static_cast<std::uint64_t>(i);
    traffic.routings.push_back(random_routing(problem, workload.tokens, workload.routing, seed));
    rename_to_oldest(traffic.routings.back(), order);
    traffic.inputs.push_back(random_input(workload.tokens, problem.hidden, seed));
    touched += traffic.routings.back().active_experts();
  }
  return traffic;
}

}  // namespace moetune
