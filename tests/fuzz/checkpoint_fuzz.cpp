// A safetensors file that may say anything, loaded as one of the checkpoints in tests/fixtures/checkpoints/: the first
// byte chooses which one's config holds, and how it is cut; the rest is the file.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/dequantize.h"
#include "model/layer.h"

namespace moetune {
namespace {

struct Fixture {
  Geometry geometry;
  std::int64_t layer = 0;
};

/// The rows of cases.json.
std::vector<Fixture> read_fixtures() {
  std::vector<Fixture> fixtures;
  const auto cases = read_json(MOETUNE_SOURCE_DIR "/tests/fixtures/checkpoints/cases.json");
  if (!cases) std::abort();
  for (const Json& row : *cases) {
    Fixture fixture;
    Geometry& geometry = fixture.geometry;
    geometry.experts = row.at("experts").get<std::int64_t>();
    geometry.hidden = geometry.expert_hidden = row.at("hidden").get<std::int64_t>();
    geometry.intermediate = row.at("intermediate").get<std::int64_t>();
    geometry.gated = row.at("gated").get<bool>();
    geometry.expert_bias = row.at("bias").get<bool>();
    fixture.layer = row.at("layer").get<std::int64_t>();
    if (!from_json(row.at("weights"), geometry.weights)) std::abort();
    fixtures.push_back(std::move(fixture));
  }
  return fixtures;
}

/// A folder in memory for this process, gone when it ends.
class ScratchFolder {
 public:
  ScratchFolder() : path_("/dev/shm/moetune_fuzz_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Problem problem_of(const Geometry& geometry, const Cut& how) {
  Problem problem;
  problem.experts_global = geometry.experts;
  problem.experts = geometry.experts / how.ep;
  problem.first_expert = how.ep_rank * problem.experts;
  problem.hidden = geometry.expert_hidden;
  problem.intermediate = geometry.intermediate / how.tp;
  problem.tp = how.tp;
  problem.ep = how.ep;
  problem.gated = geometry.gated;
  problem.bias = geometry.expert_bias;
  problem.weights = geometry.weights;
  return problem;
}

void fuzz_checkpoint(std::uint8_t choice, const char* text, std::size_t size) {
  static const std::vector<Fixture> fixtures = read_fixtures();
  static const ScratchFolder folder;
  const Fixture& fixture = fixtures[choice % fixtures.size()];
  const Cut how = choice < 128 ? Cut{1, 2, 0, 1} : Cut{2, 1, 1, 0};
  std::ofstream(folder.path() + "/model.safetensors", std::ios::binary).write(text, static_cast<std::streamsize>(size));
  const auto layer = load_layer(folder.path(), fixture.geometry, problem_of(fixture.geometry, how), how, fixture.layer);
  if (!layer) return;
  for (const ExpertStack* stack : {&layer->gate, &layer->up, &layer->down})
    for (std::int64_t expert = 0; expert < stack->experts; ++expert)
      if (!check_matrix(stack->at(expert))) __builtin_trap();
}

}  // namespace
}  // namespace moetune

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size != 0) moetune::fuzz_checkpoint(data[0], reinterpret_cast<const char*>(data) + 1, size - 1);
  return 0;
}
