// Compiled kernels, kept in memory and on disk, and compiled ahead by a few threads while others are being timed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cuda/compiler.h"

namespace moetune::cuda {

struct ModuleCacheOptions {
  std::string folder;                                ///< of the entries; empty: none are kept on disk
  std::int64_t max_bytes = std::int64_t{512} << 20;  ///< of all entries; beyond it the longest unused are removed
  int threads = 0;                                   ///< that compile; 0: one less than the processors, from 1 to 8
};

/// Where moetune keeps compiled kernels: the folder "kernels" of cache_folder().
[[nodiscard]] std::string kernel_cache_folder();

/// May be used from several threads at once, and by several processes on one folder.
class ModuleCache {
 public:
  using Kernel = std::shared_ptr<const CompiledKernel>;
  using Future = std::shared_future<Answer<Kernel>>;

  ModuleCache(std::shared_ptr<const Compiler> compiler, ModuleCacheOptions options);
  ModuleCache(const ModuleCache&) = delete;
  ModuleCache& operator=(const ModuleCache&) = delete;
  /// Waits for compiles under way; those that wait their turn are answered with a Reason.
  ~ModuleCache();

  /// Compiles on one of the cache's threads unless the result is there or under way; the same source is never compiled
  /// twice at once. A refusal of the program is kept like machine code; a failure of the surroundings (no memory) is
  /// not.
  [[nodiscard]] Future submit(const KernelSource& source);
  /// submit, and wait.
  [[nodiscard]] Answer<Kernel> get(const KernelSource& source) { return submit(source).get(); }

  struct Counts {
    std::int64_t compiled = 0;   ///< by the compiler
    std::int64_t from_disk = 0;  ///< read from an entry
    std::int64_t rebuilt = 0;    ///< of compiled: for an entry that could not be used
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct Job {
    std::string key;
    KernelSource source;
    std::promise<Answer<Kernel>> promise;
  };
  void work();
  [[nodiscard]] CompileResult build(const std::string& key, const KernelSource& source);
  [[nodiscard]] std::string entry_path(const std::string& key) const;
  void publish(const std::string& key, const CompileResult& result);
  void evict();

  std::shared_ptr<const Compiler> compiler_;
  ModuleCacheOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Future> results_;  ///< by key; under way or done
  std::deque<Job> queue_;
  bool stopping_ = false;
  Counts counts_;
  std::mutex evicting_;
  std::vector<std::thread> threads_;
};

}  // namespace moetune::cuda
