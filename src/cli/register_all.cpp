#include "cli/register_all.h"

#include "cpu/register.h"
#include "gpu/register.h"

namespace moetune {

void register_all(Registry& registry) {
  register_gpu(registry);  // first: where there is one, it is the device that is meant
  register_cpu(registry);
}

}  // namespace moetune
