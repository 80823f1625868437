// A compiled kernel, or the compiler's refusal of it, as a file of the kernel cache.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "cuda/compiler.h"

namespace moetune::cuda {

/// Changes whenever the meaning of an entry does; entries of another version are not read.
inline constexpr std::uint32_t kCacheEntryVersion = 1;

/// What names an entry: a hash of the text, headers, options, expressions and target, the compiler's identity and the
/// version of the entries. No path goes in.
[[nodiscard]] std::string cache_entry_key(const KernelSource& source, const std::string& compiler_identity);

/// Layout, little-endian: "MTKERNEL" | u32 version | u32 bytes of JSON | u64 bytes of cubin | 32 characters of content
/// hash over all that follows | JSON | cubin. The JSON has the key, and either "log", "lowered" and "kernels" or
/// "reason".
[[nodiscard]] std::string encode_cache_entry(const std::string& key, const CompileResult& result);

/// The result that was encoded under that key. An Error for anything else: another version, a wrong length, hash or
/// key, no JSON.
[[nodiscard]] Result<CompileResult> decode_cache_entry(const std::string& key, std::string_view bytes);

}  // namespace moetune::cuda
