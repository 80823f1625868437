// For tests: a tiny problem and a session that computes it rightly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "formats/convert.h"
#include "moe/reference.h"

namespace moetune {

inline Problem tiny_problem() {
  Problem problem;
  problem.model = "tiny";
  problem.experts = problem.experts_global = 4;
  problem.top_k = 2;
  problem.hidden = 64;
  problem.intermediate = 32;
  return problem;
}

/// The reference, rounded to bf16.
class ReferenceSession : public Session {
 public:
  ReferenceSession(const Problem& problem, const Layer& layer) : problem_(problem), layer_(layer) {}

  Status configure(const Config& /*config*/, std::int64_t /*max_tokens*/) override { return {}; }
  Status run(const Call& call) override {
    MOETUNE_TRY(const auto output, reference_layer(problem_, layer_, call.input, *call.routing));
    for (std::size_t i = 0; i < output.size(); ++i) call.output[i] = float_to_bf16(output[i]);
    return {};
  }

 protected:
  const Problem problem_;
  const Layer& layer_;
};

}  // namespace moetune
