#include "arch/facts.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "base/file.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kArchs = R"(version = 1
date = 2026-08-24

[[arch]]
compute_capability = "9.0"
generation = "Hopper"
smem_per_sm_bytes = 233472
smem_per_block_bytes = 232448
smem_reserved_per_block_bytes = 1024
oldest_toolkit = "11.8"
targets = [{ name = "sm_90", toolkit = "11.8" }, { name = "sm_90a", toolkit = "12.0" }]

[[arch]]
compute_capability = "12.0"
generation = "Blackwell"
oldest_toolkit = "12.8"
targets = [{ name = "sm_120", toolkit = "12.8" }, { name = "sm_120f", toolkit = "12.9" }]

[[feature]]
name = "wgmma"
what = "warpgroup mma"
on = [
  { capabilities = ["9.0"], support = "native", targets = "a", known = "assembler" },
  { capabilities = ["12.0"], support = "no", known = "assembler" },
]
)";

constexpr std::string_view kGpus = R"(version = 1

[[gpu]]
name = "NVIDIA H200"
aliases = ["H200 SXM"]
family = ["H2"]
default_of = ["H2"]
compute_capability = "9.0"
multiprocessors = 132
smem_per_block_bytes = 232448
tdp_w = 700
measured = { bf16_tflops = 805.5 }
source = "device dump"
confidence = "high"
date = 2026-08-24
unverified = ["tdp_w"]

[[gpu]]
name = "NVIDIA H200 NVL"
family = ["H2"]
compute_capability = "9.0"
source = "device dump"
confidence = "low"
date = 2026-08-24
)";

Result<Facts> parse(std::string_view archs, std::string_view gpus) {
  return parse_facts({"archs.toml", archs}, {"gpus.toml", gpus});
}

std::string shipped(const std::string& name) {
  return read_file(std::string(MOETUNE_SOURCE_DIR) + "/data/" + name, std::size_t{1} << 20).value();
}

TEST(ParseFacts, ReadsEveryKindOfField) {
  const auto facts = parse(kArchs, kGpus);
  ASSERT_TRUE(facts) << facts.error().what;
  const Gpu& gpu = facts->gpus.at(0);
  EXPECT_EQ(gpu.line, 3);
  EXPECT_EQ(gpu.multiprocessors, 132);
  EXPECT_EQ(gpu.tdp_w, 700.0);
  EXPECT_EQ(gpu.measured->bf16_tflops, 805.5);
  EXPECT_EQ(gpu.confidence, Confidence::high);
  EXPECT_EQ(gpu.date, std::chrono::year(2026) / 8 / 24);
  EXPECT_FALSE(gpu.l2_mib.has_value());
  EXPECT_EQ(facts->archs_date, std::chrono::year(2026) / 8 / 24);
  EXPECT_EQ(facts->archs.at(0).targets.at(1).name, "sm_90a");
  EXPECT_EQ(facts->features.at(0).row("9.0")->support, Support::native);
  EXPECT_EQ(facts->features.at(0).row("8.0"), nullptr);
  EXPECT_EQ(facts->products.at("h200sxm"), 0u);
  EXPECT_EQ(facts->families.at("h2").meant, 0u);
  EXPECT_EQ(facts->families.at("h2").gpus.size(), 2u);
}

struct Broken {
  std::string_view from, to;  ///< what is replaced in the good file
  std::string_view place;     ///< file:line: field
  std::string_view what;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.to; }

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string copy(text);
  copy.replace(copy.find(from), from.size(), to);
  return copy;
}

class BrokenGpus : public ::testing::TestWithParam<Broken> {};
class BrokenArchs : public ::testing::TestWithParam<Broken> {};

void expect_refused(const Result<Facts>& facts, const Broken& broken) {
  ASSERT_FALSE(facts);
  EXPECT_THAT(facts.error().what, StartsWith(broken.place));
  EXPECT_THAT(facts.error().what, HasSubstr(broken.what));
}

TEST_P(BrokenGpus, SaysFileLineAndField) {
  expect_refused(parse(kArchs, replaced(kGpus, GetParam().from, GetParam().to)), GetParam());
}

TEST_P(BrokenArchs, SaysFileLineAndField) {
  expect_refused(parse(replaced(kArchs, GetParam().from, GetParam().to), kGpus), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenGpus,
    ::testing::Values(
        Broken{"tdp_w = 700", "tdp = 700", "gpus.toml:11: gpu[0]: ", "unknown key 'tdp'"},
        Broken{"tdp_w = 700", "tdp_w = \"700\"", "gpus.toml:11: gpu[0].tdp_w: ", "expected a number, found a text"},
        Broken{"tdp_w = 700", "tdp_w = -1", "gpus.toml:11: gpu[0].tdp_w: ", "-1 is outside"},
        Broken{"tdp_w = 700", "tdp_w = nan", "gpus.toml:11: gpu[0].tdp_w: ", "nan is outside"},
        Broken{"tdp_w = 700", "tdp_w = true", "gpus.toml:11: gpu[0].tdp_w: ", "found true or false"},
        Broken{"tdp_w = 700", "tdp_w = ", "gpus.toml:11: ", ""},
        Broken{"tdp_w = 700", "tdp_w = 700\ntdp_w = 701", "gpus.toml:12: ", "tdp_w"},
        Broken{"= 132", "= 132.0", "gpus.toml:9: gpu[0].multiprocessors: ", "expected an integer"},
        Broken{"= 132", "= 0", "gpus.toml:3: gpu[0]: ", "a count of 0"},
        Broken{"= 132", "= 99999999999999999", "gpus.toml:9: gpu[0].multiprocessors: ", "is outside"},
        Broken{"= 132", "= 99999999999999999999999", "gpus.toml:9: ", ""},
        Broken{"= [\"H200 SXM\"]", "= \"H200 SXM\"", "gpus.toml:5: gpu[0].aliases: ", "expected a list"},
        Broken{"[\"H200 SXM\"]", "[7]", "gpus.toml:5: gpu[0].aliases[0]: ", "expected a text, found an integer"},
        Broken{"H200 SXM", "", "gpus.toml:5: gpu[0].aliases[0]: ", "is an empty text"},
        Broken{"H200 SXM", "h200_nvl", "gpus.toml:18: gpu[1].name: ", "already names 'NVIDIA H200' of line 3"},
        Broken{"H200 SXM", "nvidia h200", "gpus.toml:3: gpu[0].aliases: ", "already names 'NVIDIA H200' of line 3"},
        Broken{"H200 SXM", "sm_90a", "gpus.toml:3: gpu[0].aliases: ", "reads as a compile target"},
        Broken{"H200 SXM", "- _", "gpus.toml:3: gpu[0].aliases: ", "cannot be looked up"},
        Broken{"family = [\"H2\"]", "family = [\"H200\"]", "gpus.toml:3: gpu[0].default_of: ", "is not in"},
        Broken{"family = [\"H2\"]", "family = [\"H2\", \"h-2\"]", "gpus.toml:3: gpu[0].family: ", "listed twice"},
        Broken{"family = [\"H2\"]", "family = [\"H2\", \"-\"]", "gpus.toml:3: gpu[0].family: ", "cannot be looked up"},
        Broken{"family = [\"H2\"]", "family = [\"H2\", \"H3\"]", "gpus.toml:3: family: ", "covers one product only"},
        Broken{"NVL\"\n", "NVL\"\ndefault_of = [\"H2\"]\n", "gpus.toml:18: gpu[1].default_of: ", "already means"},
        Broken{"\"9.0\"", "\"9.5\"", "gpus.toml:3: gpu[0].compute_capability: ", "is not in data/archs.toml"},
        Broken{"\"9.0\"", "9.0", "gpus.toml:8: gpu[0].compute_capability: ", "expected a text"},
        Broken{"232448", "101376", "gpus.toml:3: gpu[0].smem_per_block_bytes: ", "differs from the 232448 of 9.0"},
        Broken{"\"high\"", "\"sure\"", "gpus.toml:14: gpu[0].confidence: ", "none of low, medium, high"},
        Broken{"2026-08-24", "\"today\"", "gpus.toml:15: gpu[0].date: ", "expected a date"},
        Broken{"2026-08-24", "2026-02-30", "gpus.toml:15: ", ""},
        Broken{"[\"tdp_w\"]", "[\"l2_mib\"]", "gpus.toml:3: gpu[0].unverified: ", "'l2_mib' is not a key given here"},
        Broken{"{ bf16_tflops = 805.5 }", "805.5", "gpus.toml:12: gpu[0].measured: ", "expected a table"},
        Broken{"bf16_tflops = 805.5", "bf16 = 805.5", "gpus.toml:12: gpu[0].measured: ", "unknown key 'bf16'"},
        Broken{"source = \"device dump\"\n", "", "gpus.toml:3: gpu[0].source: ", "is missing"},
        Broken{"source = \"", "source = \"\xff", "gpus.toml:13: ", ""}, Broken{"[[gpu]]", "[gpu]", "gpus.toml:", ""},
        Broken{"version = 1", "version = 2", "gpus.toml: ", "format version 2 is not 1"},
        Broken{"version = 1", "", "gpus.toml:1: version: ", "is missing"}));

INSTANTIATE_TEST_SUITE_P(
    All, BrokenArchs,
    ::testing::Values(
        Broken{"y = \"12.0\"", "y = \"9.0\"", "archs.toml:13: arch[1].compute_capability: ", "listed twice"},
        Broken{"y = \"12.0\"", "y = \"120\"", "archs.toml:13: arch[1].compute_capability: ", "is not written as 12.0"},
        Broken{"y = \"12.0\"", "y = \"13.0\"", "archs.toml:13: arch[1].targets: ", "none is named after 13.0"},
        Broken{"sm_120f", "sm_90a", "archs.toml:13: arch[1].targets: ", "'sm_90a' is listed twice"},
        Broken{"sm_120f", "120f", "archs.toml:13: arch[1].targets: ", "is not written as sm_120a"},
        Broken{"sm_120f", "blackwell", "archs.toml:13: arch[1].targets: ", "is not written as sm_120a"},
        Broken{"toolkit = \"12.9\"", "toolkit = \"new\"", "archs.toml:13: arch[1].targets: ", "is not a version"},
        Broken{"oldest_toolkit = \"12.8\"", "oldest_toolkit = \"12.\"",
               "archs.toml:13: arch[1].oldest_toolkit: ", "is not a version"},
        Broken{"232448", "233000", "archs.toml:4: arch[0].smem_per_block_bytes: ", "233000 + 1024 reserved exceed"},
        Broken{"smem_per_sm_bytes = 233472\n", "", "archs.toml:4: arch[0]: ", "gives one of"},
        Broken{"\"wgmma\"", "7", "archs.toml:20: feature[0].name: ", "expected a text"},
        Broken{"{ capabilities = [\"12.0\"], support = \"no\", known = \"assembler\" },", "",
               "archs.toml:19: feature[0].on: ", "answers 0 times for 12.0"},
        Broken{"[\"12.0\"]", "[\"12.0\", \"9.0\"]", "archs.toml:19: feature[0].on: ", "answers 2 times for 9.0"},
        Broken{"[\"12.0\"]", "[\"12.0\", \"8.0\"]", "archs.toml:24: feature[0].on[1].capabilities: ", "no [[arch]]"},
        Broken{"targets = \"a\"", "targets = \"b\"", "archs.toml:23: feature[0].on[0].targets: ", "none of any"},
        Broken{"targets = \"a\"", "targets = \"f/a\"", "archs.toml:23: feature[0].on[0].targets: ", "9.0 has no 'f/a'"},
        Broken{"targets = \"a\", ", "", "archs.toml:23: feature[0].on[0].targets: ", "where support is not"},
        Broken{"\"native\"", "\"maybe\"", "archs.toml:23: feature[0].on[0].support: ", "none of no, emulated, native"},
        Broken{"what = \"warpgroup mma\"", "what = 1979-05-27T07:32:00",
               "archs.toml:21: feature[0].what: ", "found a date or time"}));

TEST(ParseFacts, RefusesAFeatureListedTwice) {
  const std::string archs = std::string(kArchs) + std::string(kArchs.substr(kArchs.find("[[feature]]")));
  expect_refused(parse(archs, kGpus), {"", "", "archs.toml:26: feature[1].name: ", "'wgmma' is listed twice"});
}

TEST(ParseFacts, BoundsWhatItReads) {
  EXPECT_THAT(parse(std::string(2 << 20, '#'), kGpus).error().what, HasSubstr("2097152 bytes exceed the limit"));
  const std::string nested = "version = " + std::string(500000, '[');
  EXPECT_THAT(parse(nested, kGpus).error().what, StartsWith("archs.toml:1: "));
  std::string many = "[";
  for (int i = 0; i < 2000; ++i) many += "\"a" + std::to_string(i) + "\",";
  EXPECT_THAT(parse(kArchs, replaced(kGpus, "[\"H200 SXM\"]", many + "]")).error().what,
              HasSubstr("gpus.toml:5: gpu[0].aliases: 2000 entries exceed the limit"));
  EXPECT_THAT(parse(kArchs, replaced(kGpus, "H200 SXM", std::string(1001, 'x'))).error().what,
              HasSubstr("gpus.toml:5: gpu[0].aliases[0]: a text of 1001 bytes exceeds"));
}

// Whatever is done to a file, the answer is facts or an error that names a file.
TEST(ParseFacts, SurvivesDamage) {
  std::mt19937 random(20260824);
  const std::string good[2] = {std::string(kArchs), std::string(kGpus)};
  for (int i = 0; i < 4000; ++i) {
    std::string damaged[2] = {good[0], good[1]};
    std::string& text = damaged[random() % 2];
    const std::size_t place = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[place] = static_cast<char>(random() % 256);
        break;
      case 1:
        text.resize(place);
        break;
      case 2:
        text.erase(place, random() % 40);
        break;
      default:
        text.insert(place, text.substr(random() % text.size(), random() % 60));
        break;
    }
    const auto facts = parse(damaged[0], damaged[1]);
    EXPECT_TRUE(facts || facts.error().what.starts_with("archs.toml:") || facts.error().what.starts_with("gpus.toml:"))
        << facts.error().what << "\n"
        << text;
  }
}

class ShippedFacts : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(facts()) << facts().error().what; }
  static const Gpu& gpu(const std::string& key) { return facts()->gpus.at(facts()->products.at(key)); }
};

TEST_F(ShippedFacts, AreTheFilesInTheTree) {
  const auto read = parse(shipped("archs.toml"), shipped("gpus.toml"));
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->products, facts()->products);
  EXPECT_EQ(read->features.size(), facts()->features.size());
}

TEST_F(ShippedFacts, CoverEveryCapabilityFromVoltaOn) {
  for (const auto* capability :
       {"7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"})
    EXPECT_NE(facts()->arch(capability), nullptr) << capability;
}

TEST_F(ShippedFacts, AreCutAtEveryLineWithoutHarm) {
  const std::string archs = shipped("archs.toml"), gpus = shipped("gpus.toml");
  std::size_t refused = 0, cuts = 0;
  for (std::size_t end = archs.find('\n'); end != std::string::npos && end + 1 < archs.size();
       end = archs.find('\n', end + 200)) {
    ++cuts;
    if (!parse(archs.substr(0, end), gpus)) ++refused;
  }
  EXPECT_GT(cuts, 50u);
  EXPECT_GT(refused, 10u);  // cuts among the architectures lose capabilities that products need
}

TEST_F(ShippedFacts, HavePlausibleNumbers) {
  const auto within = [](const Gpu& gpu, std::string_view what, std::optional<double> value, double low, double high) {
    EXPECT_TRUE(!value || (*value >= low && *value <= high)) << gpu.name << ": " << what << " = " << *value;
  };
  for (const auto& gpu : facts()->gpus) {
    within(gpu, "multiprocessors", gpu.multiprocessors, 8, 200);
    within(gpu, "memory_gb", gpu.memory_gb, 8, 300);
    within(gpu, "memory_gb_s", gpu.memory_gb_s, 200, 8200);
    within(gpu, "l2_mib", gpu.l2_mib, 2, 160);
    within(gpu, "tdp_w", gpu.tdp_w, 20, 1500);
    within(gpu, "boost_mhz", gpu.boost_mhz, 1000, 3000);
    if (gpu.memory_mib) {  // a driver reports a few percent less than fitted, or GiB where the label says GB
      const double ratio = static_cast<double>(*gpu.memory_mib) * 1048576 / (*gpu.memory_gb * 1e9);
      within(gpu, "reported over sold memory", ratio, 0.95, 1.08);
    }
    if (gpu.bf16_tflops && gpu.fp8_tflops) within(gpu, "fp8 / bf16", *gpu.fp8_tflops / *gpu.bf16_tflops, 1.95, 2.05);
    const double capability = std::stod(gpu.compute_capability);
    EXPECT_EQ(gpu.fp16_tflops.has_value(), capability < 8.0) << gpu.name;
    EXPECT_TRUE(!gpu.bf16_tflops || capability >= 8.0) << gpu.name;
    EXPECT_TRUE(!gpu.fp8_tflops || capability >= 8.9) << gpu.name;
    EXPECT_TRUE(!gpu.fp4_tflops || capability >= 10.0) << gpu.name;
  }
}

// No product's published peak passes what its tensor cores do at boost, and none but the cut-down ones is far below.
TEST_F(ShippedFacts, PeaksAgreeWithSmsTimesClock) {
  for (const auto& gpu : facts()->gpus) {
    const auto& rates = facts()->arch(gpu.compute_capability)->tensor_rate;
    if (!gpu.bf16_tflops || !gpu.multiprocessors || !gpu.boost_mhz || rates.empty()) continue;
    double nearest = 1e9;
    for (const auto& rate : rates) {
      const double peak = static_cast<double>(*gpu.multiprocessors) * *gpu.boost_mhz * 1e6 * rate.bf16.value() / 1e12;
      if (std::abs(std::log(*gpu.bf16_tflops / peak)) < std::abs(std::log(nearest))) nearest = *gpu.bf16_tflops / peak;
    }
    EXPECT_LT(nearest, 1.02) << gpu.name;
    EXPECT_GT(nearest, gpu.name == "NVIDIA H20" ? 0.2 : 0.85) << gpu.name;
  }
}

// Bandwidth worked from what board makers print: width of the memory bus in bits times transfers a second.
TEST_F(ShippedFacts, BandwidthsFollowFromTheMemoryBus) {
  struct Bus {
    std::string key;
    double bits, gigatransfers;
  };
  const Bus buses[] = {{"rtx5090", 512, 28},
                       {"rtxpro6000workstation", 512, 28},
                       {"rtx5080", 256, 30},
                       {"rtx4090", 384, 21},
                       {"rtx3090", 384, 19.5},
                       {"l4", 192, 12.5},
                       {"l40s", 384, 18},
                       {"t4", 256, 10},
                       {"gb10", 256, 8.533},
                       {"h100sxm", 5120, 5.238},
                       {"h100pcie", 5120, 3.186},
                       {"a100pcie40gb", 5120, 2.43},
                       {"teslav100sxm216gb", 4096, 1.754},
                       {"gh200", 6144, 5.238}};
  for (const auto& bus : buses) {
    const double expected = bus.bits / 8 * bus.gigatransfers;
    EXPECT_NEAR(gpu(bus.key).memory_gb_s.value(), expected, 0.01 * expected) << bus.key;
  }
}

// Multiprocessors by the architectures' white papers; shared memory by the CUDA programming guide's table.
TEST_F(ShippedFacts, CountsAndLimitsAreThePublishedOnes) {
  const std::pair<const char*, std::int64_t> counts[] = {{"v100sxm216gb", 80}, {"t4", 40},
                                                         {"a100sxm80gb", 108}, {"a10", 72},
                                                         {"rtx3090", 82},      {"rtx4090", 128},
                                                         {"l40s", 142},        {"l4", 58},
                                                         {"h100sxm", 132},     {"h100pcie", 114},
                                                         {"h200", 132},        {"b200", 148},
                                                         {"rtx5090", 170},     {"rtxpro6000workstation", 188}};
  for (const auto& [key, count] : counts) EXPECT_EQ(gpu(key).multiprocessors, count) << key;
  const std::tuple<const char*, std::int64_t, std::int64_t, std::int64_t> limits[] = {
      {"7.0", 98304, 98304, 64},    {"7.5", 65536, 65536, 32},    {"8.0", 167936, 166912, 64},
      {"8.6", 102400, 101376, 48},  {"8.7", 167936, 166912, 48},  {"8.9", 102400, 101376, 48},
      {"9.0", 233472, 232448, 64},  {"10.0", 233472, 232448, 64}, {"10.3", 233472, 232448, 64},
      {"11.0", 233472, 232448, 48}, {"12.0", 102400, 101376, 48}, {"12.1", 102400, 101376, 48}};
  for (const auto& [capability, sm, block, warps] : limits) {
    const Arch& arch = *facts()->arch(capability);
    EXPECT_EQ(arch.smem_per_sm_bytes, sm) << capability;
    EXPECT_EQ(arch.smem_per_block_bytes, block) << capability;
    EXPECT_EQ(arch.warps_per_sm, warps) << capability;
    EXPECT_EQ(arch.registers_per_sm, 65536) << capability;
  }
}

TEST_F(ShippedFacts, SayWhatIsFromMemory) {
  EXPECT_TRUE(gpu("rtx5090").unverified.empty());
  EXPECT_THAT(gpu("h100nvl").unverified, ::testing::Contains("memory_gb_s"));
  for (const auto& gpu : facts()->gpus) EXPECT_TRUE(gpu.source != "from memory" || !gpu.unverified.empty()) << gpu.name;
}

}  // namespace
}  // namespace moetune
