#include "gpu/gpu_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/graph.h"

namespace moetune {
namespace {

/// A projection ready to launch.
struct LoadedKernel {
  cuda::Function function;
  cuda::Launch launch;
};

/// What a config brings: kernels, and how far tiles reach.
struct Loaded {
  std::vector<cuda::Module> modules;
  std::vector<LoadedKernel> projections;  ///< first, second
  std::int64_t tile_tokens = 0;
};

/// One call's input on the device.
struct Slot {
  cuda::DeviceBuffer input, ids, weights;
  std::int64_t tokens = 0;
};

/// What the kernels write, for calls of up to max_tokens.
struct Scratch {
  cuda::DeviceBuffer output, sorted_pairs, tiles, counters, middle, pairs;
  std::int64_t max_tokens = -1, tile_tokens = 0;
};

template <class T>
std::size_t bytes_of(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(T);
}

class GpuSession : public Session {
 public:
  GpuSession(const GpuBackend& backend, std::shared_ptr<GpuRuntime> runtime, Problem problem, Target target,
             cuda::ContextRef context, cuda::Stream stream, std::shared_ptr<const DeviceLayer> weights)
      : backend_(backend),
        runtime_(std::move(runtime)),
        problem_(std::move(problem)),
        target_(std::move(target)),
        context_(std::move(context)),
        stream_(std::move(stream)),
        weights_(std::move(weights)) {}

  Status load_shared() {
    MOETUNE_TRY(cuda::Module module, runtime_->load(shared_kernels(target_)));
    MOETUNE_TRY(auto align, module.function("moe_align"));
    MOETUNE_TRY(auto combine, module.function("moe_combine"));
    constexpr std::int64_t kScan = 33;  // ints that exclusive_sum needs
    align_.push_back({std::move(align),
                      {.block = {kAlignThreads, 1, 1},
                       .dynamic_shared_bytes = static_cast<std::uint32_t>(4 * (problem_.experts + kScan))}});
    combine_.push_back({std::move(combine), {.block = {kCombineThreads, 1, 1}}});
    shared_.push_back(std::move(module));
    overlaps_ = capability_number(target_) >= 90;
    MOETUNE_TRY(multiprocessors_, context_->attribute(cuda::cu::DeviceAttribute::multiprocessors));
    return {};
  }

  Status configure(const Config& config, std::int64_t max_tokens) override {
    const Space space = backend_.space(problem_, target_, max_tokens);
    if (!space.contains(config))
      return fail(fmt::format("config \"{}\" is not in the space of {}", describe(config), backend_.id()));
    const LayerPlan plan = backend_.plan(problem_, target_, config);
    Loaded loaded;
    loaded.tile_tokens = plan.tile_tokens;
    if (runtime_->compiler())  // both at once
      for (const auto& kernel : {plan.up, plan.down}) (void)runtime_->kernels().submit(kernel.source);
    for (const auto& kernel : {plan.up, plan.down}) MOETUNE_CHECK(add(kernel, loaded));
    MOETUNE_CHECK(reserve(max_tokens, plan.tile_tokens));
    graphs_.clear();
    loaded_ = std::move(loaded);
    return {};
  }

  Status run(const Call& call) override {
    MOETUNE_CHECK(check(call));
    if (call.routing->tokens == 0) return {};
    MOETUNE_CHECK(upload(call, 0));
    MOETUNE_CHECK(scratch_.output.fill(stream_, 0xFF));  // what no kernel writes is NaN
    MOETUNE_CHECK(enqueue(slots_[0], false));
    MOETUNE_CHECK(stream_.synchronize());
    return scratch_.output.download(std::as_writable_bytes(call.output));
  }

  /// Calls in one graph, launched as often as there are calls but at most kRounds times: a time is the mean over one
  /// launch, so that nothing of the host and no event lies between the calls. The spread of such times is that of whole
  /// rounds, not of single calls.
  Result<std::vector<double>> time(std::span<const Call> calls) override {
    constexpr std::size_t kRounds = 16;
    for (const Call& call : calls) MOETUNE_CHECK(check(call));
    if (calls.empty()) return std::vector<double>{};
    for (std::size_t i = 0; i < calls.size(); ++i) MOETUNE_CHECK(upload(calls[i], i));
    MOETUNE_TRY(const cuda::TimedGraph* graph, graph_for(calls));
    const std::size_t rounds = std::min(calls.size(), kRounds);
    std::vector<double> means(rounds), times(calls.size());
    for (double& mean : means) {
      MOETUNE_TRY(const auto replayed, graph->replay(stream_));
      mean = replayed.front();
    }
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = means[i * rounds / times.size()];
    MOETUNE_CHECK(scratch_.output.download(std::as_writable_bytes(calls.back().output)));
    return times;
  }

 private:
  Status add(const ProjectionKernel& kernel, Loaded& loaded) {
    MOETUNE_TRY(cuda::Module module, runtime_->load(kernel.source));
    MOETUNE_TRY(auto function, module.function(kernel.entry));
    MOETUNE_CHECK(function.allow_dynamic_shared(kernel.shared_bytes));
    MOETUNE_TRY(const int blocks, function.blocks_per_sm(static_cast<int>(kernel.threads), kernel.shared_bytes));
    if (blocks < 1)
      return fail(fmt::format("{} with {} threads and {} bytes of shared memory does not fit on a multiprocessor",
                              kernel.entry, kernel.threads, kernel.shared_bytes));
    cuda::Launch launch;
    launch.grid[0] = static_cast<std::uint32_t>(blocks * multiprocessors_);
    launch.block[0] = static_cast<std::uint32_t>(kernel.threads);
    launch.overlaps_previous = overlaps_;
    launch.dynamic_shared_bytes = static_cast<std::uint32_t>(kernel.shared_bytes);
    loaded.projections.push_back({std::move(function), launch});
    loaded.modules.push_back(std::move(module));
    return {};
  }

  Status reserve(std::int64_t max_tokens, std::int64_t tile_tokens) {
    constexpr std::int64_t kMostPairs = std::int64_t{1} << 30;  // kernels count pairs in 32 bits
    if (max_tokens < 0 || max_tokens > kMostPairs / problem_.top_k)
      return fail(
          fmt::format("{} tokens of {} experts each are more than {} pairs", max_tokens, problem_.top_k, kMostPairs));
    if (max_tokens == scratch_.max_tokens && tile_tokens == scratch_.tile_tokens) return {};
    const std::int64_t pairs = max_tokens * problem_.top_k;
    const std::int64_t padded = (problem_.intermediate + 63) / 64 * 64;
    Scratch scratch;
    scratch.max_tokens = max_tokens;
    scratch.tile_tokens = tile_tokens;
    MOETUNE_TRY(scratch.output, allocate(bytes_of<std::uint16_t>(max_tokens * problem_.hidden)));
    MOETUNE_TRY(scratch.sorted_pairs, allocate(bytes_of<int>(pairs)));
    // Every expert may end with a tile that is not full.
    MOETUNE_TRY(scratch.tiles, allocate(bytes_of<MoeTile>(std::min(pairs, problem_.experts + pairs / tile_tokens))));
    MOETUNE_TRY(scratch.counters, allocate(2 * sizeof(int)));
    MOETUNE_TRY(scratch.middle, allocate(bytes_of<std::uint16_t>(pairs * padded)));
    MOETUNE_TRY(scratch.pairs, allocate(bytes_of<std::uint16_t>(pairs * problem_.hidden)));
    // Columns between intermediate and its next multiple of 64 are multiplied by weights of zero.
    MOETUNE_CHECK(scratch.middle.fill(stream_, 0));
    scratch_ = std::move(scratch);
    slots_.clear();
    return {};
  }
  Result<cuda::DeviceBuffer> allocate(std::size_t bytes) { return cuda::DeviceBuffer::allocate(context_, bytes); }

  [[nodiscard]] Status check(const Call& call) const {
    if (loaded_.projections.empty()) return fail("run before configure");
    const std::int64_t tokens = call.routing->tokens;
    const auto pairs = static_cast<std::size_t>(tokens * problem_.top_k);
    const auto values = static_cast<std::size_t>(tokens * problem_.hidden);
    if (tokens < 0 || tokens > scratch_.max_tokens)
      return fail(fmt::format("a call of {} tokens; configured for up to {}", tokens, scratch_.max_tokens));
    if (call.routing->top_k != problem_.top_k || call.routing->ids.size() != pairs ||
        call.routing->weights.size() != pairs || call.input.size() != values || call.output.size() != values)
      return fail(
          fmt::format("{} tokens need {} pairs and {} values; the call has {} ids, {} weights, {} inputs, {} outputs",
                      tokens, pairs, values, call.routing->ids.size(), call.routing->weights.size(), call.input.size(),
                      call.output.size()));
    return {};
  }

  Status upload(const Call& call, std::size_t index) {
    while (slots_.size() <= index) {
      Slot slot;
      const std::int64_t pairs = scratch_.max_tokens * problem_.top_k;
      MOETUNE_TRY(slot.input, allocate(bytes_of<std::uint16_t>(scratch_.max_tokens * problem_.hidden)));
      MOETUNE_TRY(slot.ids, allocate(bytes_of<int>(pairs)));
      MOETUNE_TRY(slot.weights, allocate(bytes_of<float>(pairs)));
      slots_.push_back(std::move(slot));
    }
    Slot& slot = slots_[index];
    slot.tokens = call.routing->tokens;
    MOETUNE_CHECK(slot.input.upload(std::as_bytes(call.input)));
    MOETUNE_CHECK(slot.ids.upload(std::as_bytes(std::span(call.routing->ids))));
    return slot.weights.upload(std::as_bytes(std::span(call.routing->weights)));
  }

  /// The layer's four launches. A kernel begins while the one ahead of it ends, and waits for it itself
  /// (ptx::wait_for_previous); the first one so only where it follows another layer.
  Status enqueue(const Slot& slot, bool follows) {
    MoeCall call{};
    call.input = slot.input.as<unsigned short>();
    call.ids = slot.ids.as<int>();
    call.routing = slot.weights.as<float>();
    call.output = scratch_.output.as<unsigned short>();
    call.tokens = static_cast<int>(slot.tokens);
    call.top_k = static_cast<int>(problem_.top_k);
    call.hidden = static_cast<int>(problem_.hidden);
    call.intermediate = static_cast<int>(problem_.intermediate);
    call.experts = static_cast<int>(problem_.experts);
    call.tile_tokens = static_cast<int>(loaded_.tile_tokens);
    call.sorted_pairs = scratch_.sorted_pairs.as<int>();
    call.tiles = scratch_.tiles.as<MoeTile>();
    call.tile_count = scratch_.counters.as<int>();
    call.next_item = scratch_.counters.as<int>() + 1;
    call.middle = scratch_.middle.as<unsigned short>();
    call.pairs = scratch_.pairs.as<unsigned short>();
    const auto alpha = static_cast<float>(problem_.activation.alpha),
               limit = static_cast<float>(problem_.activation.limit);
    const auto& [up, down] = std::tie(loaded_.projections[0], loaded_.projections[1]);
    cuda::Launch align = align_.front().launch;
    align.overlaps_previous = follows && overlaps_;
    MOETUNE_CHECK(align_.front().function(stream_, align, call));
    MOETUNE_CHECK(up.function(stream_, up.launch, call, weights_->up.view, alpha, limit));
    MOETUNE_CHECK(down.function(stream_, down.launch, call, weights_->down.view, alpha, limit));
    constexpr std::int64_t kColumns = 8, kBlocksPerSm = 8;  // a thread of combine_pairs makes eight columns
    const std::int64_t vectors = slot.tokens * (problem_.hidden / kColumns);
    cuda::Launch combine = combine_.front().launch;
    combine.overlaps_previous = overlaps_;
    combine.grid[0] = static_cast<std::uint32_t>(
        std::min(multiprocessors_ * kBlocksPerSm, (vectors + kCombineThreads - 1) / kCombineThreads));
    return combine_.front().function(stream_, combine, call);
  }

  /// The graph of calls with those numbers of tokens, from slots 0, 1, …
  Result<const cuda::TimedGraph*> graph_for(std::span<const Call> calls) {
    std::vector<std::int64_t> tokens;
    for (const Call& call : calls) tokens.push_back(call.routing->tokens);
    for (const auto& [key, graph] : graphs_)
      if (key == tokens) return &graph;
    bool follows = false;
    const auto lap = [&](std::size_t i) -> Status {
      return slots_[i].tokens == 0 ? Status{} : enqueue(slots_[i], std::exchange(follows, true));
    };
    MOETUNE_TRY(auto graph, cuda::TimedGraph::capture(stream_, calls.size(), lap, cuda::Marks::ends));
    graphs_.clear();  // one is enough: a benchmark asks for the same again and again
    graphs_.emplace_back(std::move(tokens), std::move(graph));
    return &graphs_.back().second;
  }

  const GpuBackend& backend_;
  std::shared_ptr<GpuRuntime> runtime_;
  Problem problem_;
  Target target_;
  cuda::ContextRef context_;
  cuda::Stream stream_;
  std::shared_ptr<const DeviceLayer> weights_;
  std::vector<cuda::Module> shared_;
  std::vector<LoadedKernel> align_, combine_;  // one each, after load_shared
  std::int64_t multiprocessors_ = 0;
  bool overlaps_ = false;  ///< whether kernels may begin before the one ahead has ended
  Loaded loaded_;
  Scratch scratch_;
  std::vector<Slot> slots_;
  std::vector<std::pair<std::vector<std::int64_t>, cuda::TimedGraph>> graphs_;
};

}  // namespace

Result<std::unique_ptr<Session>> open_gpu_session(const GpuBackend& backend, std::shared_ptr<GpuRuntime> runtime,
                                                  const Problem& problem, const Layer& layer, const Target& target) {
  MOETUNE_TRY(auto context, runtime->context());
  MOETUNE_TRY(auto stream, cuda::Stream::create(context));
  MOETUNE_TRY(auto weights, runtime->weights(layer));
  auto session = std::make_unique<GpuSession>(backend, std::move(runtime), problem, target, std::move(context),
                                              std::move(stream), std::move(weights));
  MOETUNE_CHECK(session->load_shared());
  return Result<std::unique_ptr<Session>>(std::move(session));
}

}  // namespace moetune
