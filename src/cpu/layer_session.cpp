#include "cpu/layer_session.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace moetune {
namespace {

/// Pairs of an expert that one tile takes at a time, so that a thread's memory does not grow with the call.
constexpr std::int64_t kPairBlock = 1024;
constexpr std::int64_t kAlignment = 64;

constexpr std::int64_t aligned(std::int64_t bytes) { return ceil_div(bytes, kAlignment) * kAlignment; }
constexpr std::int64_t float_bytes(std::int64_t count) {
  return aligned(count * static_cast<std::int64_t>(sizeof(float)));
}

const std::byte* row_of(const ExpertStack& stack, std::int64_t expert, std::int64_t row) {
  const MatrixView view = stack.at(expert);
  return view.data + matrix_bytes(stack.spec, row, stack.k).data;
}

const float* bias_at(const ExpertStack& stack, std::int64_t expert, std::int64_t row) {
  const auto bias = stack.bias_of(expert);
  return bias.empty() ? nullptr : bias.data() + row;
}

}  // namespace

LayerSession::LayerSession(const Problem& problem, const Layer& layer, TileChooser choose)
    : problem_(problem), layer_(layer), choose_(std::move(choose)), math_(row_math()) {}

Status LayerSession::configure(const Config& config, std::int64_t max_tokens) {
  MOETUNE_TRY(const TileChoice choice, choose_(config, max_tokens));
  MOETUNE_TRY(auto prepared, prepare(choice, max_tokens));
  if (pool_ == nullptr || pool_->size() != choice.threads) {
    MOETUNE_TRY(pool_, ThreadPool::create(choice.threads));
  }
  prepared_ = std::move(prepared);
  return {};
}

Result<std::unique_ptr<LayerSession::Prepared>> LayerSession::prepare(const TileChoice& choice,
                                                                      std::int64_t max_tokens) const {
  const std::int64_t pairs = max_tokens * problem_.top_k;
  auto prepared = std::make_unique<Prepared>();
  prepared->choice = choice;
  prepared->plan = CallPlan(problem_, max_tokens);
  prepared->up_inputs.resize(static_cast<std::size_t>(pairs));
  prepared->down_inputs.resize(static_cast<std::size_t>(pairs));
  MOETUNE_TRY(prepared->inputs, Buffer::allocate(max_tokens * choice.up.input_bytes));
  MOETUNE_TRY(prepared->intermediates, Buffer::allocate(pairs * float_bytes(problem_.intermediate)));
  MOETUNE_TRY(prepared->arranged, Buffer::allocate(pairs * choice.down.input_bytes));
  for (std::int64_t worker = 0; worker < choice.threads; ++worker) {
    MOETUNE_TRY(Workspace workspace, make_workspace(choice, max_tokens));
    prepared->workspaces.push_back(std::move(workspace));
  }
  return prepared;
}

Result<LayerSession::Workspace> LayerSession::make_workspace(const TileChoice& choice, std::int64_t max_tokens) const {
  const std::int64_t block = std::min(kPairBlock, std::max<std::int64_t>(max_tokens * problem_.top_k, 1));
  const std::int64_t row = float_bytes(std::max(problem_.hidden, problem_.intermediate));
  const std::int64_t gate = block * float_bytes(choice.up_rows);
  const std::int64_t up = block * float_bytes(std::max(choice.up_rows, choice.down_rows));
  const std::int64_t sums = max_tokens * float_bytes(choice.down_rows);
  const std::int64_t scratch = aligned(std::max(choice.up.scratch_bytes, choice.down.scratch_bytes));
  Workspace workspace;
  MOETUNE_TRY(workspace.memory, Buffer::allocate(row + gate + up + sums + scratch));
  std::byte* at = workspace.memory.data();
  const auto take = [&at](std::int64_t bytes) { return reinterpret_cast<float*>(std::exchange(at, at + bytes)); };
  workspace.row = take(row);
  workspace.gate = take(gate);
  workspace.up = take(up);
  workspace.sums = take(sums);
  workspace.scratch = at;
  return workspace;
}

Status LayerSession::run(const Call& call) {
  if (prepared_ == nullptr) return fail("the session is not configured");
  MOETUNE_CHECK(prepared_->plan.build(call));
  arrange_inputs(call.input);
  project_up();
  arrange_intermediates();
  project_down(call.output);
  return {};
}

template <class Body>
void LayerSession::parallel_tiles(std::int64_t items, Body&& body) {
  const std::int64_t workers = pool_->size();
  WorkItems work(items, workers, prepared_->choice.dynamic);
  const std::int64_t step = prepared_->choice.dynamic ? workers : 1;
  pool_->run([&](std::int64_t worker) {
    Workspace& workspace = prepared_->workspaces[static_cast<std::size_t>(worker)];
    work.for_each(worker, [&](std::int64_t item) { body(item, item + step < items ? item + step : -1, workspace); });
  });
}

void LayerSession::arrange_inputs(std::span<const std::uint16_t> input) {
  const std::int64_t hidden = problem_.hidden;
  parallel_tiles(prepared_->plan.tokens(), [&](std::int64_t token, std::int64_t, Workspace& workspace) {
    math_.from_bf16(input.data() + token * hidden, hidden, workspace.row);
    prepared_->choice.up.arrange(workspace.row, hidden,
                                 prepared_->inputs.data() + token * prepared_->choice.up.input_bytes);
  });
  for (std::size_t pair = 0; pair < prepared_->plan.token().size(); ++pair) {
    prepared_->up_inputs[pair] =
        prepared_->inputs.data() + prepared_->plan.token()[pair] * prepared_->choice.up.input_bytes;
    prepared_->down_inputs[pair] =
        prepared_->arranged.data() + static_cast<std::int64_t>(pair) * prepared_->choice.down.input_bytes;
  }
}

void LayerSession::arrange_intermediates() {
  const std::int64_t stride = float_bytes(problem_.intermediate);
  parallel_tiles(prepared_->plan.pairs(), [&](std::int64_t pair, std::int64_t, Workspace&) {
    prepared_->choice.down.arrange(reinterpret_cast<const float*>(prepared_->intermediates.data() + pair * stride),
                                   problem_.intermediate,
                                   prepared_->arranged.data() + pair * prepared_->choice.down.input_bytes);
  });
}

void LayerSession::project_up() {
  const std::int64_t tiles = ceil_div(problem_.intermediate, prepared_->choice.up_rows);
  parallel_tiles(std::ssize(prepared_->plan.experts()) * tiles,
                 [&](std::int64_t item, std::int64_t next, Workspace& workspace) { up_tile(item, next, workspace); });
}

void LayerSession::set_next(const ExpertStack& stack, std::int64_t expert, std::int64_t first_row, std::int64_t rows,
                            TileArgs& args) const {
  const std::int64_t left = std::min(rows, stack.n - first_row);
  args.next_tile = row_of(stack, expert, first_row);
  args.next_tile_bytes = std::min(prepared_->choice.prefetch_bytes, matrix_bytes(stack.spec, left, stack.k).data);
}

void LayerSession::up_tile(std::int64_t item, std::int64_t next_item, Workspace& workspace) {
  const std::int64_t tiles = ceil_div(problem_.intermediate, prepared_->choice.up_rows);
  const ExpertPairs& all = prepared_->plan.experts()[static_cast<std::size_t>(item / tiles)];
  const std::int64_t first_row = item % tiles * prepared_->choice.up_rows;
  TileArgs args;
  args.first_row = first_row;
  args.rows = std::min(prepared_->choice.up_rows, problem_.intermediate - first_row);
  args.out_stride = prepared_->choice.up_rows;
  args.prefetch_bytes = prepared_->choice.prefetch_bytes;
  args.scratch = workspace.scratch;
  for (std::int64_t done = 0; done < all.pairs; done += kPairBlock) {
    const ExpertPairs block{all.expert, all.first + done, std::min(kPairBlock, all.pairs - done)};
    args.inputs = prepared_->up_inputs.data() + block.first;
    args.pairs = block.pairs;
    if (problem_.gated) {
      args.weights = layer_.gate.at(all.expert);
      args.out = workspace.gate;
      set_next(layer_.up, all.expert, first_row, args.rows, args);
      prepared_->choice.up.run(prepared_->choice.up, args);
    }
    args.weights = layer_.up.at(all.expert);
    args.out = workspace.up;
    args.next_tile_bytes = 0;
    if (next_item >= 0)
      set_next(problem_.gated ? layer_.gate : layer_.up,
               prepared_->plan.experts()[static_cast<std::size_t>(next_item / tiles)].expert,
               next_item % tiles * prepared_->choice.up_rows, prepared_->choice.up_rows, args);
    prepared_->choice.up.run(prepared_->choice.up, args);
    activate_pairs(block, first_row, args.rows, workspace);
  }
}

void LayerSession::activate_pairs(const ExpertPairs& pairs, std::int64_t first_row, std::int64_t rows,
                                  const Workspace& workspace) {
  const std::int64_t stride = float_bytes(problem_.intermediate);
  ProjectedRow row;
  row.up_bias = bias_at(layer_.up, pairs.expert, first_row);
  if (problem_.gated) row.gate_bias = bias_at(layer_.gate, pairs.expert, first_row);
  for (std::int64_t p = 0; p < pairs.pairs; ++p) {
    const std::int64_t pair = pairs.first + p;
    row.up = workspace.up + p * prepared_->choice.up_rows;
    if (problem_.gated) row.gate = workspace.gate + p * prepared_->choice.up_rows;
    if (problem_.router.weight_on_input) row.factor = prepared_->plan.weight()[static_cast<std::size_t>(pair)];
    math_.activate(problem_.activation, row, rows,
                   reinterpret_cast<float*>(prepared_->intermediates.data() + pair * stride) + first_row);
  }
}

void LayerSession::project_down(std::span<std::uint16_t> output) {
  parallel_tiles(
      ceil_div(problem_.hidden, prepared_->choice.down_rows),
      [&](std::int64_t item, std::int64_t next, Workspace& workspace) { down_tile(item, next, workspace, output); });
}

void LayerSession::down_tile(std::int64_t item, std::int64_t next_item, Workspace& workspace,
                             std::span<std::uint16_t> output) {
  const auto experts = prepared_->plan.experts();
  const std::int64_t first_row = item * prepared_->choice.down_rows;
  TileArgs args;
  args.first_row = first_row;
  args.rows = std::min(prepared_->choice.down_rows, problem_.hidden - first_row);
  args.out = workspace.up;
  args.out_stride = prepared_->choice.down_rows;
  args.prefetch_bytes = prepared_->choice.prefetch_bytes;
  args.scratch = workspace.scratch;
  std::fill_n(workspace.sums, prepared_->plan.tokens() * prepared_->choice.down_rows, 0.0F);
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const ExpertPairs& all = experts[e];
    args.weights = layer_.down.at(all.expert);
    args.next_tile_bytes = 0;
    if (e + 1 < experts.size())
      set_next(layer_.down, experts[e + 1].expert, first_row, args.rows, args);
    else if (next_item >= 0)
      set_next(layer_.down, experts.front().expert, next_item * prepared_->choice.down_rows,
               prepared_->choice.down_rows, args);
    const float* bias = bias_at(layer_.down, all.expert, first_row);
    for (std::int64_t done = 0; done < all.pairs; done += kPairBlock) {
      args.inputs = prepared_->down_inputs.data() + all.first + done;
      args.pairs = std::min(kPairBlock, all.pairs - done);
      prepared_->choice.down.run(prepared_->choice.down, args);
      for (std::int64_t p = 0; p < args.pairs; ++p) {
        const auto pair = static_cast<std::size_t>(all.first + done + p);
        math_.accumulate(workspace.up + p * prepared_->choice.down_rows, bias,
                         problem_.router.weight_on_input ? 1.0F : prepared_->plan.weight()[pair], args.rows,
                         workspace.sums + prepared_->plan.token()[pair] * prepared_->choice.down_rows);
      }
    }
  }
  for (std::int64_t token = 0; token < prepared_->plan.tokens(); ++token)
    math_.to_bf16(workspace.sums + token * prepared_->choice.down_rows, args.rows,
                  output.data() + token * problem_.hidden + first_row);
}

}  // namespace moetune
