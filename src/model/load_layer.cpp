// A layer's weights from a checkpoint: every expert's tensors are found first, then read in parallel.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/json.h"
#include "base/parallel.h"
#include "formats/dequantize.h"
#include "model/checkpoint.h"
#include "model/expert_source.h"
#include "model/layer.h"

namespace moetune {
namespace {

Status check_cut(const Geometry& geometry, const Problem& problem, const Cut& how) {
  const bool fits = problem.experts > 0 && problem.intermediate > 0 && how.tp > 0 && how.ep > 0 && how.tp_rank >= 0 &&
                    how.tp_rank < how.tp && how.ep_rank >= 0 && how.ep_rank < how.ep &&
                    geometry.intermediate % how.tp == 0 && geometry.intermediate / how.tp == problem.intermediate &&
                    geometry.experts % how.ep == 0 && geometry.experts / how.ep == problem.experts &&
                    geometry.expert_hidden == problem.hidden && problem.first_expert == how.ep_rank * problem.experts;
  if (fits) return check_shape(problem.weights, geometry.intermediate, geometry.expert_hidden);
  return fail(
      fmt::format("{} experts from {} on, of {} x {}, are not rank {} of TP {} and rank {} of EP {} of {} "
                  "experts of {} x {}",
                  problem.experts, problem.first_expert, problem.intermediate, problem.hidden, how.tp_rank, how.tp,
                  how.ep_rank, how.ep, geometry.experts, geometry.intermediate, geometry.expert_hidden));
}

Result<std::int64_t> choose_layer(const Geometry& geometry, std::int64_t layer) {
  const auto& sparse = geometry.moe_layers;
  if (layer < 0) return sparse.empty() ? 0 : sparse.front();
  if (sparse.empty() || std::find(sparse.begin(), sparse.end(), layer) != sparse.end()) return layer;
  return fail(fmt::format("layer {} of {} is dense or not there; the first with experts is {}, the last {}", layer,
                          geometry.layers, sparse.front(), sparse.back()));
}

/// GPTQ's second format stores zero points as they are, the first less one; config.json tells.
bool is_gptq_v2(const std::string& folder) {
  const auto config = read_json(folder + "/config.json");
  if (!config || !config->is_object()) return false;
  const auto quantization = config->find("quantization_config");
  if (quantization == config->end() || !quantization->is_object()) return false;
  const auto format = quantization->find("checkpoint_format");
  return format != quantization->end() && format->is_string() && format->get<std::string>() == "gptq_v2";
}

/// One expert's projection on its way into its stack.
struct Task {
  ExpertStack* stack = nullptr;
  std::int64_t expert = 0;  ///< local
  ExpertSource source;
};

MatrixPart part_of(Projection projection, const Problem& problem, const Cut& how) {
  const std::int64_t all = problem.intermediate * how.tp, first = problem.intermediate * how.tp_rank;
  if (projection == Projection::down) return {problem.hidden, all, 0, problem.hidden, first, problem.intermediate};
  return {all, problem.hidden, first, problem.intermediate, 0, problem.hidden};
}

Status find_stack(const ExpertTensors& tensors, const Problem& problem, const Cut& how, Projection projection,
                  bool gptq_v2, ExpertStack& stack, std::vector<Task>& tasks) {
  const MatrixPart part = part_of(projection, problem, how);
  // Under TP the devices' outputs are added up: one of them adds the bias of down.
  const bool bias = problem.bias && (projection != Projection::down || how.tp_rank == 0);
  if (problem.bias) stack.bias.assign(static_cast<std::size_t>(stack.experts * stack.n), 0.0F);
  for (std::int64_t expert = 0; expert < problem.experts; ++expert) {
    MOETUNE_TRY(ExpertSource source,
                find_expert(tensors, problem.weights, bias, projection, problem.first_expert + expert, part, gptq_v2));
    tasks.push_back({&stack, expert, std::move(source)});
  }
  return {};
}

}  // namespace

Result<Layer> load_layer(const std::string& folder, const Geometry& geometry, const Problem& problem, const Cut& how,
                         std::int64_t layer) {
  MOETUNE_CHECK(check_cut(geometry, problem, how));
  MOETUNE_TRY(const std::int64_t index, choose_layer(geometry, layer));
  MOETUNE_TRY(Checkpoint checkpoint, Checkpoint::open(folder));
  MOETUNE_TRY(const ExpertTensors tensors, ExpertTensors::find(checkpoint, geometry, index));
  MOETUNE_TRY(Layer result, allocate_layer(problem));
  const bool gptq_v2 = problem.weights.format == WeightFormat::int4 && is_gptq_v2(folder);
  std::vector<Task> tasks;
  const auto find = [&](Projection projection, ExpertStack& stack) -> Status {
    if (stack.experts == 0) return {};
    return find_stack(tensors, problem, how, projection, gptq_v2, stack, tasks);
  };
  MOETUNE_CHECK(find(Projection::gate, result.gate));
  MOETUNE_CHECK(find(Projection::up, result.up));
  MOETUNE_CHECK(find(Projection::down, result.down));
  std::vector<Status> done(tasks.size());
  parallel_for(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    done[static_cast<std::size_t>(i)] = read_expert(task.source, *task.stack, task.expert);
  });
  for (Status& status : done) MOETUNE_CHECK(std::move(status));
  result.origin = fmt::format("{}, layer {}", folder, index);
  return result;
}

}  // namespace moetune
