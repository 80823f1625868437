#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include "base/env.h"

namespace moetune {

void start_log() {
  auto logger = spdlog::stderr_logger_mt("moetune");
  logger->set_pattern("%H:%M:%S.%e %l %v");
  logger->set_level(spdlog::level::from_str(env(Env::log).value_or("warn")));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace moetune
