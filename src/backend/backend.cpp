#include "backend/backend.h"

#include "base/clock.h"

namespace moetune {

Result<std::vector<double>> Session::time(std::span<const Call> calls) {
  std::vector<double> us;
  us.reserve(calls.size());
  for (const auto& call : calls) {
    const double start = now_s();
    MOETUNE_CHECK(run(call));
    us.push_back((now_s() - start) * 1e6);
  }
  return us;
}

const Backend* Registry::find(std::string_view id) const {
  for (const auto& backend : backends_)
    if (backend->id() == id) return backend.get();
  return nullptr;
}

const Device* Registry::find(TargetKind kind) const {
  for (const auto& device : devices_)
    if (device->kind() == kind) return device.get();
  return nullptr;
}

}  // namespace moetune
