#include "cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/layer.h"

namespace moetune {
namespace {

constexpr std::int64_t kMaxTokens = 1 << 20;
constexpr std::size_t kMaxRows = 64;

/// The whole of `text` as a number, or nothing.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

tl::unexpected<Error> bad_tokens(std::string_view part) {
  return fail(fmt::format("--tokens: '{}' is not a number of tokens from 0 to {}", part.substr(0, 40), kMaxTokens),
              {"give numbers separated by commas, or a range that doubles: --tokens 1,16,256 or --tokens 1-64"});
}

}  // namespace

Result<std::vector<std::int64_t>> parse_tokens(std::string_view text) {
  std::vector<std::int64_t> tokens;
  const auto add = [&](std::int64_t value) {
    if (std::find(tokens.begin(), tokens.end(), value) == tokens.end()) tokens.push_back(value);
  };
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    const std::size_t dash = part.find('-');
    const auto first = parse_number<std::int64_t>(part.substr(0, std::min(dash, part.size())));
    const auto last = dash == std::string_view::npos ? first : parse_number<std::int64_t>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last > kMaxTokens || *first > *last ||
        (dash != std::string_view::npos && *first == 0))
      return bad_tokens(part);
    for (std::int64_t value = *first; value <= *last; value *= 2) {
      add(value);
      if (value == 0 || first == last) break;
    }
    if (tokens.size() > kMaxRows) return fail(fmt::format("--tokens: more than {} numbers", kMaxRows));
    if (comma == text.size()) return tokens;
    text.remove_prefix(comma + 1);
  }
}

Result<Budget> parse_budget(std::string_view text) {
  const auto bad = fail(fmt::format("--budget: '{}' is neither a time nor a number of evaluations", text.substr(0, 40)),
                        {"give a time such as 90s, 10m or 1h, or a number of evaluations a row such as 200"});
  if (const auto count = parse_number<std::int64_t>(text)) {
    if (*count < 0) return bad;
    return Budget{std::nullopt, *count};
  }
  for (const auto& [unit, seconds] :
       {std::pair{"ms", 1e-3}, std::pair{"s", 1.0}, std::pair{"m", 60.0}, std::pair{"h", 3600.0}}) {
    if (!text.ends_with(unit)) continue;
    const auto amount = parse_number<double>(text.substr(0, text.size() - std::string_view(unit).size()));
    if (amount && std::isfinite(*amount) && *amount >= 0 && *amount <= 1e6)
      return Budget{*amount * seconds, std::nullopt};
  }
  return bad;
}

std::string check_count(const std::string& text) {
  if (parse_number<std::uint64_t>(text)) return "";
  return fmt::format("'{}' is not a whole number from 0 to 2^64 - 1", text.substr(0, 40));
}

void LayerOptions::add_to(CLI::App& command) {
  command.add_option("MODEL", model, "Hugging Face folder, its config.json, or a known name such as GLM-5-NVFP4")
      ->required();
  command.add_option("--tp", cut.tp, "devices that share each expert (tensor parallelism)")->capture_default_str();
  command.add_option("--ep", cut.ep, "groups of devices that share out the experts (expert parallelism)")
      ->capture_default_str();
  command.add_option("--tp-rank", cut.tp_rank, "which of the --tp devices this is")->capture_default_str();
  command.add_option("--ep-rank", cut.ep_rank, "which of the --ep groups this is")->capture_default_str();
  command.add_option("--layer", layer, "layer of the model whose weights are read; -1: its first MoE layer")
      ->capture_default_str();
  command.add_option("--seed", seed, "seed of random weights, inputs and routing")
      ->check(check_count)
      ->capture_default_str();
}

std::string LayerChoice::weights_origin() const {
  if (weights_folder.empty()) return fmt::format("random weights, seed {}", seed);
  return layer < 0 ? fmt::format("weights of the first MoE layer in {}", weights_folder)
                   : fmt::format("weights of layer {} in {}", layer, weights_folder);
}

Result<LayerChoice> choose_layer(const LayerOptions& options) {
  MOETUNE_TRY(Model model, open_model(options.model));
  MOETUNE_TRY(Problem problem, cut(model.geometry, options.cut));
  const bool real = !model.folder.empty() && has_weights(model.folder);
  const auto& moe_layers = model.geometry.moe_layers;
  if (options.layer != -1 && std::find(moe_layers.begin(), moe_layers.end(), options.layer) == moe_layers.end())
    return fail(
        fmt::format("layer {} of {} holds no experts", options.layer, model.geometry.model),
        {moe_layers.empty() ? "leave --layer out"
                            : fmt::format("its MoE layers run from {} to {}", moe_layers.front(), moe_layers.back())});
  LayerChoice choice{std::move(model), std::move(problem), options.cut, "", options.layer, options.seed};
  if (real) choice.weights_folder = choice.model.folder;
  return choice;
}

void TargetOptions::add_device(CLI::App& command) {
  command.add_option("--device", device, "where to run: gpu or cpu; default: the GPU where there is one");
}

void TargetOptions::add_gpu(CLI::App& command) {
  command.add_option("--gpu", gpu, "answer for this GPU instead: product name, alias or sm_XX; it need not be here");
}

Result<Target> choose_target(const TargetOptions& options, const Registry& registry) {
  std::vector<std::string> known;
  for (const auto& device : registry.devices()) {
    known.emplace_back(to_string(device->kind()));
    if (!options.device.empty() && options.device != to_string(device->kind())) continue;
    const auto targets = device->targets();
    if (!targets.empty()) return targets.front();
  }
  return fail(fmt::format("--device: no '{}' here", options.device.empty() ? "device" : options.device),
              {fmt::format("devices that this build can use: {}", fmt::join(known, ", "))});
}

void RoutingOptions::add_to(CLI::App& command) {
  command.add_option("--tokens", tokens, "numbers of tokens in one call, e.g. 1,16,256 or 1-64 (doubling)")
      ->capture_default_str();
  command.add_option("--routing", routing, "how tokens spread over experts: uniform, power_law, one_hot, round_robin")
      ->capture_default_str();
}

Result<RoutingKind> parse_routing(const RoutingOptions& options) {
  if (const auto kind = parse_enum<RoutingKind>(options.routing)) return *kind;
  return fail(fmt::format("--routing: '{}' is not known", options.routing.substr(0, 40)),
              {fmt::format("one of {}", fmt::join(EnumNames<RoutingKind>::names, ", "))});
}

}  // namespace moetune
