#include "cuda/module_cache.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "cuda/cache_entry.h"

namespace moetune::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxEntryBytes = std::size_t{256} << 20;
constexpr std::string_view kSuffix = ".kernel";

int thread_count(int wanted) {
  constexpr int kMostThreads = 8;
  if (wanted > 0) return std::min(wanted, 64);
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(processors - 1, 1, kMostThreads);
}

struct EntryFile {
  fs::path path;
  std::int64_t bytes = 0;
  fs::file_time_type used;
};

/// All files of the cache; what vanishes meanwhile, since another process removed it, is left out.
std::vector<EntryFile> list_entries(const std::string& folder) {
  std::vector<EntryFile> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    const auto bytes = entry->file_size(gone);
    if (gone) continue;
    const auto used = entry->last_write_time(gone);
    // Also what a killed process left beside an entry: write_file's temporary files begin with the entry's name.
    if (!gone && entry->path().filename().string().find(kSuffix) != std::string::npos)
      entries.push_back({entry->path(), static_cast<std::int64_t>(bytes), used});
  }
  return entries;
}

}  // namespace

std::string kernel_cache_folder() { return cache_folder() + "/kernels"; }

ModuleCache::ModuleCache(std::shared_ptr<const Compiler> compiler, ModuleCacheOptions options)
    : compiler_(std::move(compiler)), options_(std::move(options)) {
  for (int i = 0; i < thread_count(options_.threads); ++i) threads_.emplace_back([this] { work(); });
}

ModuleCache::~ModuleCache() {
  std::deque<Job> left;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    left.swap(queue_);
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
  for (auto& job : left)
    job.promise.set_value(refuse({ReasonCode::toolchain, "compiling " + job.source.name + " was given up",
                                  "a compile that is waited for", "", ""}));
}

ModuleCache::Future ModuleCache::submit(const KernelSource& source) {
  const auto key = cache_entry_key(source, compiler_->identity());
  const std::lock_guard lock(mutex_);
  if (const auto found = results_.find(key); found != results_.end()) return found->second;
  Job job{key, source, {}};
  Future future = job.promise.get_future().share();
  results_.emplace(key, future);
  queue_.push_back(std::move(job));
  wake_.notify_one();
  return future;
}

ModuleCache::Counts ModuleCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void ModuleCache::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    auto result = build(job.key, job.source);
    if (result) {
      job.promise.set_value(std::make_shared<const CompiledKernel>(*std::move(result)));
      continue;
    }
    if (!result.error().in_source) {
      // Asked again, it is tried again.
      lock.lock();
      results_.erase(job.key);
      lock.unlock();
    }
    job.promise.set_value(refuse(std::move(result).error().reason));
  }
}

CompileResult ModuleCache::build(const std::string& key, const KernelSource& source) {
  bool unusable = false;
  if (const auto path = entry_path(key); !path.empty()) {
    std::error_code error;
    if (fs::exists(path, error)) {
      auto bytes = read_file(path, kMaxEntryBytes);
      auto entry = bytes ? decode_cache_entry(key, *bytes) : Result<CompileResult>(tl::unexpect, bytes.error());
      if (entry) {
        fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // the longest unused go first
        const std::lock_guard lock(mutex_);
        ++counts_.from_disk;
        return *std::move(entry);
      }
      unusable = true;
      spdlog::info("kernel cache: {} is compiled again: {}", path, entry.error().what);
    }
  }
  auto result = compiler_->compile(source);
  if (result || result.error().in_source) publish(key, result);
  const std::lock_guard lock(mutex_);
  ++counts_.compiled;
  if (unusable) ++counts_.rebuilt;
  return result;
}

std::string ModuleCache::entry_path(const std::string& key) const {
  return options_.folder.empty() ? std::string{} : options_.folder + "/" + key + std::string(kSuffix);
}

void ModuleCache::publish(const std::string& key, const CompileResult& result) {
  const auto path = entry_path(key);
  if (path.empty()) return;
  // A folder that cannot be written to costs time, not results.
  if (auto status = write_file(path, encode_cache_entry(key, result)); !status)
    spdlog::warn("kernel cache: {}", status.error().what);
  else
    evict();
}

void ModuleCache::evict() {
  const std::unique_lock lock(evicting_, std::try_to_lock);
  if (!lock) return;
  auto entries = list_entries(options_.folder);
  std::int64_t total = 0;
  for (const auto& entry : entries) total += entry.bytes;
  if (total <= options_.max_bytes) return;
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.used < b.used; });
  // The newest stays, also where it is larger than the limit alone.
  for (std::size_t i = 0; i + 1 < entries.size() && total > options_.max_bytes; ++i) {
    std::error_code gone;
    if (fs::remove(entries[i].path, gone)) total -= entries[i].bytes;
  }
}

}  // namespace moetune::cuda
