// A few threads that wait for work by spinning first and sleeping after.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"

namespace moetune {

/// The calling thread and size() - 1 helpers. A region costs about a microsecond while the helpers still spin (some
/// 50 µs after the last region), a wake-up by the system after that. Works with more threads than processors.
class ThreadPool {
 public:
  /// 1 to 1024 threads; an Error where the system does not give that many.
  [[nodiscard]] static Result<std::unique_ptr<ThreadPool>> create(std::int64_t threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(helpers_.size()) + 1; }

  /// Calls body(worker) once for every worker 0 … size()-1, each on its own thread, worker 0 on this one, and returns
  /// when all are done. The body must not throw and must not call the same pool.
  template <class Body>
  void run(Body&& body) {
    region([](void* context, std::int64_t worker) { (*static_cast<std::remove_reference_t<Body>*>(context))(worker); },
           &body);
  }

 private:
  using Task = void (*)(void* context, std::int64_t worker);

  ThreadPool() = default;
  void region(Task task, void* context);
  void help(std::int64_t worker);

  static constexpr std::size_t kCacheLine = 64;
  // What helpers read to start and what they write to end lie in lines of their own.
  alignas(kCacheLine) std::atomic<std::uint32_t> epoch_{0};  ///< counts regions
  Task task_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  alignas(kCacheLine) std::atomic<std::uint32_t> pending_{0};  ///< helpers that have not finished the region
  alignas(kCacheLine) std::vector<std::thread> helpers_;
};

/// Hands out items 0 … count-1 to the workers of one region, each item once.
class WorkItems {
 public:
  /// dynamic: whoever is free takes the next one, in ascending order; else worker w takes the w-th of `workers`
  /// contiguous and equal parts.
  WorkItems(std::int64_t count, std::int64_t workers, bool dynamic)
      : count_(count), workers_(workers), dynamic_(dynamic) {}

  /// Calls body(item) for each of this worker's items, ascending.
  template <class Body>
  void for_each(std::int64_t worker, Body&& body) {
    if (dynamic_) {
      for (std::int64_t item = next_.fetch_add(1, std::memory_order_relaxed); item < count_;
           item = next_.fetch_add(1, std::memory_order_relaxed))
        body(item);
    } else {
      for (std::int64_t item = worker * count_ / workers_; item < (worker + 1) * count_ / workers_; ++item) body(item);
    }
  }

 private:
  std::int64_t count_, workers_;
  bool dynamic_;
  std::atomic<std::int64_t> next_{0};
};

}  // namespace moetune
