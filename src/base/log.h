// Diagnostics for whoever debugs moetune itself; on standard error, at the level of MOETUNE_LOG. Results never go here.
#pragma once

#include <spdlog/spdlog.h>

namespace moetune {

/// Call once, first thing in main.
void start_log();

}  // namespace moetune
