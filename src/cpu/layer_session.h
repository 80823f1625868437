// Runs the layer on a thread pool: both projections in tiles of rows, each tile by a TileKernel. What the backends
// differ in is the kernels and the sizes of the tiles.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "cpu/call_plan.h"
#include "cpu/row_math.h"
#include "cpu/thread_pool.h"
#include "cpu/tile_kernel.h"
#include "model/layer.h"

namespace moetune {

/// A config, decided.
struct TileChoice {
  std::int64_t threads = 1;
  bool dynamic = true;              ///< tiles go to whoever is free, else in equal parts
  std::int64_t up_rows = 1;         ///< rows of a tile of gate and up
  std::int64_t down_rows = 1;       ///< rows of a tile of down
  std::int64_t prefetch_bytes = 0;  ///< see TileArgs
  TileKernel up, down;
};

/// A backend's reading of a config for calls of up to max_tokens.
using TileChooser = std::function<Result<TileChoice>(const Config& config, std::int64_t max_tokens)>;

class LayerSession : public Session {
 public:
  /// `layer` outlives the session.
  LayerSession(const Problem& problem, const Layer& layer, TileChooser choose);

  [[nodiscard]] Status configure(const Config& config, std::int64_t max_tokens) override;
  [[nodiscard]] Status run(const Call& call) override;

 private:
  /// Memory of one thread.
  struct Workspace {
    Buffer memory;
    float* row = nullptr;          ///< one row of H or I floats
    float* gate = nullptr;         ///< [pair block, up_rows]
    float* up = nullptr;           ///< [pair block, up_rows]; in the second phase [pair block, down_rows]
    float* sums = nullptr;         ///< [max_tokens, down_rows]
    std::byte* scratch = nullptr;  ///< the kernels'
  };

  /// All that a config decides; replaced as a whole, so that a failed configure() leaves the old one.
  struct Prepared {
    TileChoice choice;
    CallPlan plan;
    Buffer inputs;                                         ///< arranged, [max_tokens]
    Buffer intermediates;                                  ///< floats [pairs, I]
    Buffer arranged;                                       ///< the same, arranged for the down projection
    std::vector<const std::byte*> up_inputs, down_inputs;  ///< per pair of the plan
    std::vector<Workspace> workspaces;                     ///< per thread
  };

  [[nodiscard]] Result<std::unique_ptr<Prepared>> prepare(const TileChoice& choice, std::int64_t max_tokens) const;
  [[nodiscard]] Result<Workspace> make_workspace(const TileChoice& choice, std::int64_t max_tokens) const;

  // The four steps of a call; in each, any worker may do any item.
  void arrange_inputs(std::span<const std::uint16_t> input);
  void project_up();
  void arrange_intermediates();
  void project_down(std::span<std::uint16_t> output);

  void up_tile(std::int64_t item, std::int64_t next_item, Workspace& space);
  void down_tile(std::int64_t item, std::int64_t next_item, Workspace& space, std::span<std::uint16_t> output);
  void activate_pairs(const ExpertPairs& pairs, std::int64_t first_row, std::int64_t rows, const Workspace& space);
  /// Calls body(item, the item this worker probably does next or -1, workspace).
  template <class Body>
  void parallel_tiles(std::int64_t items, Body&& body);
  void set_next(const ExpertStack& stack, std::int64_t expert, std::int64_t first_row, std::int64_t rows,
                TileArgs& args) const;

  const Problem problem_;
  const Layer& layer_;
  TileChooser choose_;
  RowMath math_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Prepared> prepared_;
};

}  // namespace moetune
