#include "model/layer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include "formats/dequantize.h"

namespace moetune {

Result<Buffer> Buffer::allocate(std::int64_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* data =
      ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return fail(
        fmt::format("cannot allocate {:.2f} GB of memory: {}", static_cast<double>(bytes) / 1e9, std::strerror(errno)),
        {"cut the model further: a larger --tp or --ep"});
  constexpr std::int64_t kHugePage = 2 << 20;
  if (bytes >= kHugePage) ::madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = bytes;
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(size_));
}

Result<ExpertStack> ExpertStack::allocate(const WeightSpec& spec, std::int64_t experts, std::int64_t n,
                                          std::int64_t k) {
  constexpr std::int64_t kMostExperts = 1 << 16;
  if (experts < 1 || experts > kMostExperts)
    return fail(fmt::format("{} experts: a layer has 1 to {}", experts, kMostExperts));
  MOETUNE_CHECK(check_shape(spec, n, k));
  const MatrixBytes bytes = matrix_bytes(spec, n, k);
  if (bytes.total() > std::numeric_limits<std::int64_t>::max() / experts)
    return fail(fmt::format("{} experts of {} x {} are more than any memory holds", experts, n, k));
  ExpertStack stack{spec, experts, n, k, {}, {}, {}, {}, {}};
  MOETUNE_TRY(stack.data, Buffer::allocate(experts * bytes.data));
  MOETUNE_TRY(stack.scales, Buffer::allocate(experts * bytes.scales));
  MOETUNE_TRY(stack.zeros, Buffer::allocate(experts * bytes.zeros));
  if (spec.format == WeightFormat::nvfp4) stack.global_scale.assign(static_cast<std::size_t>(experts), 1.0F);
  return stack;
}

MatrixView ExpertStack::at(std::int64_t expert) const {
  const MatrixBytes bytes = matrix_bytes(spec, n, k);
  MatrixView view{spec, n, k, data.data() + expert * bytes.data, nullptr, nullptr, 1.0F};
  if (bytes.scales != 0) view.scales = scales.data() + expert * bytes.scales;
  if (bytes.zeros != 0) view.zeros = zeros.data() + expert * bytes.zeros;
  if (!global_scale.empty()) view.global_scale = global_scale[static_cast<std::size_t>(expert)];
  return view;
}

std::span<const float> ExpertStack::bias_of(std::int64_t expert) const {
  if (bias.empty()) return {};
  return {bias.data() + expert * n, static_cast<std::size_t>(n)};
}

namespace {

/// What Linux would give without swapping, and at most what this control group may have; nothing where it does not say.
std::optional<std::int64_t> available_memory() {
  const auto number = [](const char* path, std::string_view key) -> std::optional<std::int64_t> {
    std::ifstream file(path);
    std::string word;
    std::int64_t value = 0;
    while (!key.empty() && file >> word && word != key) {
    }
    if (!(file >> value)) return std::nullopt;
    return value;
  };
  const auto machine = number("/proc/meminfo", "MemAvailable:");
  const auto most = number("/sys/fs/cgroup/memory.max", "");
  std::optional<std::int64_t> available;
  if (machine) available = *machine * 1024;
  if (most) available = std::min(available.value_or(*most), *most);
  return available;
}

/// Memory is given when it is touched, and who touches too much is killed: better refused before.
Status check_memory(const Problem& problem) {
  const auto available = available_memory();
  const double need = static_cast<double>(expert_bytes(problem)) * static_cast<double>(problem.experts);
  if (!available || need <= static_cast<double>(*available)) return {};
  return fail(fmt::format("the layer takes {:.2f} GB, and {:.2f} GB of memory are available", need / 1e9,
                          static_cast<double>(*available) / 1e9),
              {"cut the model further: a larger --tp or --ep"});
}

}  // namespace

Result<Layer> allocate_layer(const Problem& problem) {
  MOETUNE_CHECK(check_shape(problem.weights, problem.intermediate, problem.hidden));
  MOETUNE_CHECK(check_shape(problem.weights, problem.hidden, problem.intermediate));
  const auto stack = [&](std::int64_t n, std::int64_t k) {
    return ExpertStack::allocate(problem.weights, problem.experts, n, k);
  };
  MOETUNE_CHECK(check_memory(problem));
  Layer layer;
  if (problem.gated) {
    MOETUNE_TRY(layer.gate, stack(problem.intermediate, problem.hidden));
  }
  MOETUNE_TRY(layer.up, stack(problem.intermediate, problem.hidden));
  MOETUNE_TRY(layer.down, stack(problem.hidden, problem.intermediate));
  return layer;
}

}  // namespace moetune
