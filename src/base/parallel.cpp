#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace moetune {

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body, unsigned threads) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++) body(i);
  };
  if (threads == 0) threads = std::thread::hardware_concurrency();
  const std::int64_t extra = std::min<std::int64_t>(threads, count) - 1;
  std::vector<std::jthread> started;
  started.reserve(static_cast<std::size_t>(std::max<std::int64_t>(extra, 0)));
  try {
    for (std::int64_t i = 0; i < extra; ++i) started.emplace_back(work);
  } catch (const std::system_error&) {
    // The thread limit is reached; this thread and those that started do it all.
  }
  work();
}

}  // namespace moetune
