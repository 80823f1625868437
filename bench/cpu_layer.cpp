// Times the CPU backends on one layer, next to the ceilings measured in the same run.
//
//   cpu_layer --geometry 128,8,2048,768 --format nvfp4 --tokens 1,4,64             default configs
//   cpu_layer … --backend moetune:cpu_decode --config "threads=2 rows=4 …"         one config
//   cpu_layer … --sweep 100                                                        the best of 100 configs of the space
//
// Every call has its own routing, and the experts of consecutive calls are different ones as long as there are enough,
// so that weights come from memory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "base/clock.h"
#include "cpu/register.h"
#include "moe/random.h"
#include "moe/reference.h"

namespace moetune {
namespace {

struct Options {
  std::vector<std::int64_t> geometry = {128, 8, 2048, 768};
  std::string format = "bf16", activation = "silu", backend, config;
  std::int64_t block_n = 128, block_k = 0, sweep = 0;
  std::vector<std::int64_t> tokens = {1, 4};
  bool ungated = false;
  double seconds = 0.5;
};

/// A call with memory of its own.
struct OwnedCall {
  Routing routing;
  std::vector<std::uint16_t> input, output;

  [[nodiscard]] Call view() { return {input, &routing, output}; }
};

struct Timing {
  double median_us = 0, least_us = 0, active = 0, pairs = 0;
  Comparison comparison;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Result<Problem> make_problem(const Options& options) {
  const auto format = parse_enum<WeightFormat>(options.format);
  if (!format) return fail("unknown format " + options.format);
  const auto activation = parse_enum<ActivationKind>(options.activation);
  if (!activation) return fail("unknown activation " + options.activation);
  if (options.geometry.size() != 4) return fail("--geometry takes experts,top_k,hidden,intermediate");
  Problem problem;
  problem.model = "bench";
  problem.experts = problem.experts_global = options.geometry[0];
  problem.top_k = options.geometry[1];
  problem.hidden = options.geometry[2];
  problem.intermediate = options.geometry[3];
  problem.gated = !options.ungated;
  problem.activation.kind = *activation;
  problem.weights.format = *format;
  const std::map<WeightFormat, std::int64_t> columns = {{WeightFormat::fp8_block, 128},
                                                        {WeightFormat::mxfp8, 32},
                                                        {WeightFormat::nvfp4, 16},
                                                        {WeightFormat::mxfp4, 32},
                                                        {WeightFormat::int4, 128}};
  if (columns.contains(*format)) problem.weights.block_k = options.block_k > 0 ? options.block_k : columns.at(*format);
  if (*format == WeightFormat::fp8_block) problem.weights.block_n = options.block_n;
  return problem;
}

/// Renames the experts of a routing so that they follow those of the last call.
void rotate_experts(Routing& routing, std::int64_t experts, std::int64_t& next) {
  std::map<std::int32_t, std::int32_t> renamed;
  for (std::int32_t& id : routing.ids) {
    const auto [at, is_new] = renamed.try_emplace(id, static_cast<std::int32_t>(next % experts));
    if (is_new) ++next;
    id = at->second;
  }
}

std::vector<OwnedCall> make_calls(const Problem& problem, std::int64_t tokens) {
  // Enough to go through all experts once, or a few where each call touches them all.
  const std::int64_t count = std::clamp<std::int64_t>(ceil_div(problem.experts, tokens * problem.top_k), 4, 64);
  std::vector<OwnedCall> calls(static_cast<std::size_t>(count));
  std::int64_t next_expert = 0;
  std::uint64_t seed = 1;
  for (OwnedCall& call : calls) {
    call.routing = random_routing(problem, tokens, RoutingKind::uniform, seed);
    rotate_experts(call.routing, problem.experts, next_expert);
    call.input = random_input(tokens, problem.hidden, seed++);
    call.output.assign(call.input.size(), 0xffff);
  }
  return calls;
}

/// The output of the first call against the reference, on a few tokens.
Result<Comparison> check_output(const Problem& problem, const Layer& layer, const OwnedCall& call) {
  std::vector<std::int64_t> rows;
  for (std::int64_t token = 0; token < std::min<std::int64_t>(call.routing.tokens, 4); ++token)
    rows.push_back(token * (call.routing.tokens / std::min<std::int64_t>(call.routing.tokens, 4)));
  MOETUNE_TRY(const auto reference, reference_layer(problem, layer, call.input, call.routing, rows));
  return compare_output(call.output, reference, problem.hidden, layer_tolerance(problem), rows);
}

Result<Timing> time_config(Session& session, const Config& config, std::vector<OwnedCall>& calls, double seconds) {
  MOETUNE_CHECK(session.configure(config, calls.front().routing.tokens));
  Timing timing;
  for (auto& call : calls) {
    timing.active += static_cast<double>(call.routing.active_experts()) / static_cast<double>(calls.size());
    timing.pairs += static_cast<double>(call.routing.pairs()) / static_cast<double>(calls.size());
  }
  MOETUNE_CHECK(session.run(calls.back().view()));
  std::vector<double> samples;
  const double end = now_s() + seconds;
  while (samples.size() < 5 || (now_s() < end && samples.size() < 2000))
    for (auto& call : calls) {
      const Call view = call.view();
      MOETUNE_TRY(const auto us, session.time({&view, 1}));
      samples.push_back(us.front());
      if (samples.size() >= 5 && now_s() > end) break;
    }
  timing.median_us = median(samples);
  timing.least_us = *std::min_element(samples.begin(), samples.end());
  return timing;
}

std::vector<Config> configs_to_try(const Options& options, const Backend& backend, const Problem& problem,
                                   const Target& target, std::int64_t tokens) {
  std::vector<Config> configs = {backend.default_config(problem, target, tokens)};
  if (options.sweep <= 0) return configs;
  std::vector<Config> all = backend.space(problem, target, tokens).all();
  SplitMix64 random(1);
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(static_cast<std::uint32_t>(i))]);
  if (std::ssize(all) > options.sweep) all.resize(static_cast<std::size_t>(options.sweep));
  configs.insert(configs.end(), all.begin(), all.end());
  return configs;
}

/// "name=value name=value …" over the default config.
Result<Config> parse_config(const std::string& text, Config config) {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const auto axis = std::find_if(config.values.begin(), config.values.end(),
                                   [&](const auto& value) { return value.first == word.substr(0, equals); });
    if (equals == std::string::npos || axis == config.values.end()) return fail("no such axis: " + word);
    axis->second = std::strtoll(word.c_str() + equals + 1, nullptr, 10);
  }
  return config;
}

void print_row(const Problem& problem, const Ceilings& ceilings, std::int64_t tokens, const std::string& id,
               const Config& config, const Timing& timing) {
  const double bytes =
      static_cast<double>(layer_bytes(problem, tokens, 0)) + timing.active * static_cast<double>(expert_bytes(problem));
  const double flops = layer_flops(problem, 1) * timing.pairs;
  const Floor floor = floor_of(ceilings, bytes, flops);
  fmt::print("{:>6} {:<20} {:>9.0f} {:>9.0f} {:>6.1f} {:>7.1f} {:>9.0f} {:<7} {:>6.1f} {:>6.1f} {:>8.5f}{} {}\n",
             tokens, id, timing.median_us, timing.least_us, bytes / timing.median_us / 1e3,
             flops / timing.median_us / 1e3, floor.us, to_string(floor.bound), 100 * floor.us / timing.median_us,
             flops / timing.median_us / ceilings.bf16_tflops / 1e4, timing.comparison.relative_error,
             timing.comparison.within ? " " : "!", describe(config));
}

Status bench_tokens(const Options& options, const Registry& registry, const Problem& problem, const Layer& layer,
                    const Target& target, const Ceilings& ceilings, std::int64_t tokens) {
  auto calls = make_calls(problem, tokens);
  for (const auto& backend : registry.backends()) {
    if (!options.backend.empty() && backend->id() != options.backend) continue;
    if (const auto reasons = backend->why_not(problem, target); !reasons.empty()) {
      fmt::print("{:>6} {:<20} cannot run: {} (needs {})\n", tokens, backend->id(), reasons[0].have, reasons[0].need);
      continue;
    }
    MOETUNE_TRY(auto session, backend->open(problem, layer, target));
    auto configs = configs_to_try(options, *backend, problem, target, tokens);
    if (!options.config.empty()) {
      MOETUNE_TRY(auto config, parse_config(options.config, configs.front()));
      configs = {config};
    }
    std::optional<std::pair<Timing, Config>> best;
    for (const Config& config : configs) {
      MOETUNE_TRY(Timing timing, time_config(*session, config, calls, options.seconds));
      MOETUNE_TRY(timing.comparison, check_output(problem, layer, calls.front()));
      if (&config == &configs.front()) print_row(problem, ceilings, tokens, backend->id(), config, timing);
      if (!best || timing.median_us < best->first.median_us) best = {timing, config};
    }
    if (configs.size() > 1) print_row(problem, ceilings, tokens, backend->id(), best->second, best->first);
  }
  return {};
}

Status run(const Options& options) {
  MOETUNE_TRY(const Problem problem, make_problem(options));
  Registry registry;
  register_cpu(registry);
  const Device& device = *registry.find(TargetKind::cpu);
  const Target target = device.targets().front();
  const double start = now_s();
  MOETUNE_TRY(const Ceilings ceilings, device.measure(target));
  fmt::print("{}, {} threads, {}; ceilings in {:.1f} s: FMA {:.0f} GFLOP/s, copy {:.1f} GB/s, cold reads", target.name,
             target.cores.value_or(1), target.simd.value_or("?"), now_s() - start, ceilings.bf16_tflops * 1e3,
             ceilings.copy_gb_s);
  for (const auto& read : ceilings.reads)
    fmt::print(" {:.0f} MB {:.1f} GB/s", static_cast<double>(read.bytes) / 1e6, read.gb_s);
  MOETUNE_TRY(const Layer layer, random_layer(problem, 1));
  fmt::print("\nE={} k={} H={} I={} {}, {:.0f} MB\n", problem.experts, problem.top_k, problem.hidden,
             problem.intermediate, describe(problem.weights),
             static_cast<double>(expert_bytes(problem) * problem.experts) / 1e6);
  fmt::print("{:>6} {:<20} {:>9} {:>9} {:>6} {:>7} {:>9} {:<7} {:>6} {:>6} {:>8}\n", "tokens", "backend", "us", "least",
             "GB/s", "GFLOP/s", "floor us", "bound", "%floor", "%FMA", "error");
  for (const std::int64_t tokens : options.tokens)
    MOETUNE_CHECK(bench_tokens(options, registry, problem, layer, target, ceilings, tokens));
  return {};
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) {
  moetune::Options options;
  CLI::App app("Times the CPU backends on one layer, next to the ceilings measured in the same run.");
  app.add_option("--geometry", options.geometry, "experts,top_k,hidden,intermediate")->delimiter(',');
  app.add_option("--format", options.format, "weight format");
  app.add_option("--block-n", options.block_n, "rows that share a scale (fp8_block)");
  app.add_option("--block-k", options.block_k, "columns that share a scale (fp8_block, int4)");
  app.add_option("--activation", options.activation, "function between the projections");
  app.add_flag("--ungated", options.ungated, "no gate projection");
  app.add_option("--tokens", options.tokens, "tokens per call")->delimiter(',');
  app.add_option("--backend", options.backend, "this one only");
  app.add_option("--config", options.config, "name=value …, over the default config");
  app.add_option("--sweep", options.sweep, "also time that many configs of the space and print the best");
  app.add_option("--seconds", options.seconds, "time per config");
  CLI11_PARSE(app, argc, argv);
  if (const auto status = moetune::run(options); !status) {
    fmt::print(stderr, "error: {}\n", status.error().what);
    for (const auto& hint : status.error().hints) fmt::print(stderr, "  {}\n", hint);
    return 2;
  }
  return 0;
}
