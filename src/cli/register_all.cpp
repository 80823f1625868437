#include "cli/register_all.h"

#include "cpu/register.h"

namespace moetune {

void register_all(Registry& registry) { register_cpu(registry); }

}  // namespace moetune
