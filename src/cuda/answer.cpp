#include "cuda/answer.h"

namespace moetune::cuda {

Error to_error(const Reason& reason) {
  Error error;
  error.what = reason.need.empty() ? reason.have : reason.have + "; needs " + reason.need;
  if (!reason.hint.empty()) error.hints.push_back(reason.hint);
  if (reason.code == ReasonCode::memory) error.kind = ErrorKind::out_of_memory;
  return error;
}

}  // namespace moetune::cuda
