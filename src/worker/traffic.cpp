#include "worker/traffic.h"

#include <algorithm>
#include <numeric>

#include "moe/random.h"
#include "moe/reference.h"

namespace moetune {
namespace {

constexpr std::int64_t kMinCalls = 3;
constexpr std::int64_t kUsualCalls = 64;   // enough for all experts of nearly every model,
constexpr std::int64_t kMostCalls = 1024;  // and where it is not, as many as the cache asks for
constexpr std::int64_t kMaxInputBytes = std::int64_t{512} << 20;
constexpr std::uint16_t kPoison = 0x7FC1;

/// The experts in random order: neighbours in memory are not neighbours in a call.
std::vector<std::int32_t> shuffled_experts(std::int64_t experts, std::uint64_t seed) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  SplitMix64 random(seed);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
  return order;
}

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

Traffic Traffic::make(const Problem& problem, const Workload& workload, std::int64_t cache_bytes) {
  const std::int64_t call_bytes = std::max<std::int64_t>(1, workload.tokens * problem.hidden * 2);
  const std::int64_t most = std::clamp(kMaxInputBytes / call_bytes, kMinCalls, kMostCalls);
  const std::int64_t cold_experts = 2 * cache_bytes / std::max<std::int64_t>(1, expert_bytes(problem)) + 1;
  Traffic traffic;
  traffic.hidden_ = problem.hidden;
  traffic.output_.resize(static_cast<std::size_t>((workload.tokens + 2) * problem.hidden));
  std::vector<std::int32_t> order = shuffled_experts(problem.experts, workload.seed);
  std::int64_t touched = 0;
  const auto enough = [&](std::int64_t calls) {
    if (calls < kMinCalls) return false;
    return touched >= problem.experts || (calls >= kUsualCalls && touched >= cold_experts);
  };
  for (std::int64_t i = 0; i < most && !enough(i); ++i) {
    const std::uint64_t seed = workload.seed + static_cast<std::uint64_t>(i);
    traffic.routings_.push_back(random_routing(problem, workload.tokens, workload.routing, seed));
    rename_to_oldest(traffic.routings_.back(), order);
    traffic.inputs_.push_back(random_input(workload.tokens, problem.hidden, seed));
    touched += traffic.routings_.back().active_experts();
  }
  return traffic;
}

std::span<std::uint16_t> Traffic::output() {
  const auto guard = static_cast<std::size_t>(hidden_);
  return std::span(output_).subspan(guard, output_.size() - 2 * guard);
}

std::vector<Call> Traffic::calls() {
  std::vector<Call> calls;
  for (std::size_t i = 0; i < routings_.size(); ++i) calls.push_back({inputs_[i], &routings_[i], output()});
  return calls;
}

void Traffic::poison() { std::fill(output_.begin(), output_.end(), kPoison); }

bool Traffic::is_poison(std::uint16_t value) { return value == kPoison; }

std::int64_t Traffic::stray_writes() const {
  const auto guard = static_cast<std::ptrdiff_t>(hidden_);
  const auto written = [](std::uint16_t value) { return !is_poison(value); };
  return std::count_if(output_.begin(), output_.begin() + guard, written) +
         std::count_if(output_.end() - guard, output_.end(), written);
}

double Traffic::mean_active_experts() const {
  double sum = 0;
  for (const auto& routing : routings_) sum += static_cast<double>(routing.active_experts());
  return sum / static_cast<double>(routings_.size());
}

double Traffic::mean_pairs() const {
  double sum = 0;
  for (const auto& routing : routings_) sum += static_cast<double>(routing.pairs());
  return sum / static_cast<double>(routings_.size());
}

std::int64_t Traffic::bytes() const {
  std::size_t bytes = output_.size() * sizeof(std::uint16_t);
  for (const auto& input : inputs_) bytes += input.size() * sizeof(std::uint16_t);
  for (const auto& routing : routings_) bytes += routing.ids.size() * (sizeof(std::int32_t) + sizeof(float));
  return static_cast<std::int64_t>(bytes);
}

}  // namespace moetune
