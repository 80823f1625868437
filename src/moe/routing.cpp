#include "moe/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace moetune {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

Status check_router(const Problem& problem, std::size_t logits, std::int64_t tokens, std::size_t biases) {
  const Router& router = problem.router;
  const std::int64_t experts = problem.experts_global;
  if (router.score == RouterScore::sparsemixer)
    return fail("the router scores with sparsemixer, which is recognised but not computed");
  if (problem.top_k < 1 || problem.top_k > experts)
    return fail(fmt::format("top-k {} of {} experts", problem.top_k, experts));
  if (tokens < 0 || static_cast<std::int64_t>(logits) / experts != tokens ||
      static_cast<std::int64_t>(logits) % experts != 0)
    return fail(fmt::format("{} logits are not {} tokens of {} experts", logits, tokens, experts));
  if (biases != 0 && static_cast<std::int64_t>(biases) != experts)
    return fail(fmt::format("{} correction biases for {} experts", biases, experts));
  if (router.groups < 1 || experts % router.groups != 0)
    return fail(fmt::format("{} experts do not divide into {} groups", experts, router.groups));
  if (router.top_groups < 1 || router.top_groups > router.groups)
    return fail(fmt::format("the best {} of {} expert groups", router.top_groups, router.groups));
  if (router.top_groups * (experts / router.groups) < problem.top_k)
    return fail(fmt::format("top-k {} from {} groups of {} experts", problem.top_k, router.top_groups,
                            experts / router.groups));
  return {};
}

Status check_logits(std::span<const float> logits, std::int64_t token) {
  bool any_finite = false;
  for (std::size_t expert = 0; expert < logits.size(); ++expert) {
    const float logit = logits[expert];
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity())
      return fail(fmt::format("the router logit of token {}, expert {} is {}", token, expert, logit));
    any_finite = any_finite || std::isfinite(logit);
  }
  if (!any_finite) return fail(fmt::format("every router logit of token {} is -inf", token));
  return {};
}

Status check_biases(std::span<const float> biases) {
  for (std::size_t expert = 0; expert < biases.size(); ++expert)
    if (!std::isfinite(biases[expert]))
      return fail(fmt::format("the correction bias of expert {} is {}", expert, biases[expert]));
  return {};
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// log(1 + exp(x)) without overflow.
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// Softmax in place; at least one value is finite.
void softmax(std::span<double> values) {
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0.0;
  for (double& value : values) sum += value = std::exp(value - largest);
  for (double& value : values) value /= sum;
}

/// Logits to scores, in place. The kinds that choose on logits leave them as they are.
void score(RouterScore kind, std::span<double> values) {
  switch (kind) {
    case RouterScore::softmax:
      return softmax(values);
    case RouterScore::sigmoid:
      std::transform(values.begin(), values.end(), values.begin(), sigmoid);
      return;
    case RouterScore::sqrt_softplus:
      std::transform(values.begin(), values.end(), values.begin(), [](double x) { return std::sqrt(softplus(x)); });
      return;
    case RouterScore::softmax_topk:
    case RouterScore::sigmoid_topk:
    case RouterScore::sparsemixer:
      return;
  }
}

/// Indices of the `count` largest values, largest first; of equals the lower index first.
std::vector<std::int64_t> top(std::span<const double> values, std::int64_t count) {
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&values](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&at](std::int64_t a, std::int64_t b) { return at(a) != at(b) ? at(a) > at(b) : a < b; });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

double group_value(GroupScore how, std::span<const double> members) {
  const std::int64_t count = how == GroupScore::top2_sum ? std::min<std::int64_t>(2, std::ssize(members)) : 1;
  double sum = 0.0;
  for (const std::int64_t member : top(members, count)) sum += members[static_cast<std::size_t>(member)];
  return sum;
}

/// Takes the experts of all but the best groups out of the choice.
void keep_best_groups(const Router& router, std::span<double> choice) {
  if (router.top_groups == router.groups) return;
  const auto groups = static_cast<std::size_t>(router.groups);
  const std::size_t size = choice.size() / groups;
  std::vector<double> values(groups);
  for (std::size_t group = 0; group < groups; ++group)
    values[group] = group_value(router.group_score, choice.subspan(group * size, size));
  std::vector<bool> kept(groups);
  for (const std::int64_t group : top(values, router.top_groups)) kept[static_cast<std::size_t>(group)] = true;
  for (std::size_t expert = 0; expert < choice.size(); ++expert)
    if (!kept[expert / size]) choice[expert] = kNever;
}

/// Scores of the chosen to routing weights, in place.
void weigh(const Router& router, std::span<double> chosen) {
  if (router.score == RouterScore::softmax_topk) softmax(chosen);
  if (router.score == RouterScore::sigmoid_topk) std::transform(chosen.begin(), chosen.end(), chosen.begin(), sigmoid);
  const double sum = std::accumulate(chosen.begin(), chosen.end(), 0.0);
  // Scores that all vanish stay zero, as with the tiny term that the models add to the divisor.
  const double divisor = router.renormalize && sum > 0.0 ? sum : 1.0;
  for (double& weight : chosen) weight = weight / divisor * router.scaling;
}

/// One token: its row of ids and weights.
void route_token(const Problem& problem, std::span<const float> logits, std::span<const float> biases,
                 std::span<std::int32_t> ids, std::span<float> weights) {
  std::vector<double> scores(logits.begin(), logits.end());
  score(problem.router.score, scores);
  std::vector<double> choice = scores;
  for (std::size_t expert = 0; expert < biases.size(); ++expert) choice[expert] += static_cast<double>(biases[expert]);
  keep_best_groups(problem.router, choice);
  const std::vector<std::int64_t> experts = top(choice, problem.top_k);
  std::vector<double> chosen(experts.size());
  std::transform(experts.begin(), experts.end(), chosen.begin(),
                 [&scores](std::int64_t expert) { return scores[static_cast<std::size_t>(expert)]; });
  weigh(problem.router, chosen);
  for (std::size_t slot = 0; slot < experts.size(); ++slot) {
    ids[slot] = local_expert(problem, experts[slot]);
    weights[slot] = static_cast<float>(chosen[slot]);
  }
}

}  // namespace

std::int64_t Routing::active_experts() const {
  std::vector<std::int32_t> seen;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(seen), [](std::int32_t id) { return id >= 0; });
  std::sort(seen.begin(), seen.end());
  return std::unique(seen.begin(), seen.end()) - seen.begin();
}

std::int64_t Routing::pairs() const {
  return std::count_if(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 0; });
}

std::int32_t local_expert(const Problem& problem, std::int64_t global) {
  const std::int64_t local = global - problem.first_expert;
  return local >= 0 && local < problem.experts ? static_cast<std::int32_t>(local) : -1;
}

Result<Routing> route(const Problem& problem, std::span<const float> logits, std::int64_t tokens,
                      std::span<const float> correction_bias) {
  MOETUNE_CHECK(check_router(problem, logits.size(), tokens, correction_bias.size()));
  MOETUNE_CHECK(check_biases(correction_bias));
  const auto experts = static_cast<std::size_t>(problem.experts_global);
  const auto top_k = static_cast<std::size_t>(problem.top_k);
  const auto pairs = static_cast<std::size_t>(tokens) * top_k;
  Routing routing{tokens, problem.top_k, std::vector<std::int32_t>(pairs), std::vector<float>(pairs)};
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token) {
    const std::span<const float> row = logits.subspan(token * experts, experts);
    MOETUNE_CHECK(check_logits(row, static_cast<std::int64_t>(token)));
    route_token(problem, row, correction_bias, std::span(routing.ids).subspan(token * top_k, top_k),
                std::span(routing.weights).subspan(token * top_k, top_k));
  }
  return routing;
}

}  // namespace moetune
