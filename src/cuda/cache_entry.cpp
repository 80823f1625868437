#include "cuda/cache_entry.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/json.h"

namespace moetune::cuda {
namespace {

static_assert(std::endian::native == std::endian::little, "entries are little-endian");

constexpr std::string_view kMagic = "MTKERNEL";
constexpr std::size_t kHashBytes = 32;

struct Sizes {
  std::uint32_t version = kCacheEntryVersion;
  std::uint32_t json_bytes = 0;
  std::uint64_t cubin_bytes = 0;
};
constexpr std::size_t kHeaderBytes = kMagic.size() + sizeof(Sizes) + kHashBytes;

/// Length first, so that no two lists of texts give the same bytes.
void append(std::string& all, std::string_view text) {
  all += std::to_string(text.size());
  all += ':';
  all += text;
}

Json names_json(const std::map<std::string, std::string>& names) {
  Json json = Json::object();
  for (const auto& [expression, name] : names) json[expression] = name;
  return json;
}

Status read_names(const Json& json, std::map<std::string, std::string>& names) {
  if (!json.is_object()) return fail("names are no object");
  for (const auto& [expression, name] : json.items()) MOETUNE_CHECK(from_json(name, names[expression]));
  return {};
}

Result<CompileResult> read_result(const Json& json, std::string_view cubin) {
  if (const auto reason = json.find("reason"); reason != json.end()) {
    CompileFailure failure{{}, true};
    MOETUNE_CHECK(from_json(*reason, failure.reason));
    return CompileResult(tl::unexpect, std::move(failure));
  }
  CompiledKernel kernel;
  kernel.cubin = cubin;
  const auto field = [&json](const char* name) { return json.contains(name) ? json[name] : Json(nullptr); };
  MOETUNE_CHECK(from_json(field("log"), kernel.log));
  MOETUNE_CHECK(from_json(field("kernels"), kernel.kernels));
  MOETUNE_CHECK(read_names(field("lowered"), kernel.lowered));
  return CompileResult(std::move(kernel));
}

}  // namespace

std::string cache_entry_key(const KernelSource& source, const std::string& compiler_identity) {
  std::string all;
  append(all, fmt::format("{}", kCacheEntryVersion));
  append(all, compiler_identity);
  append(all, source.target);
  append(all, source.name);  // in the messages that are kept
  append(all, source.text);
  append(all, fmt::format("{} {} {}", source.headers.size(), source.options.size(), source.expressions.size()));
  for (const auto& [name, text] : source.headers) {
    append(all, name);
    append(all, text);
  }
  for (const auto& option : source.options) append(all, option);
  for (const auto& expression : source.expressions) append(all, expression);
  return content_hash(all);
}

std::string encode_cache_entry(const std::string& key, const CompileResult& result) {
  Json json = {{"key", key}};
  if (result) {
    json["log"] = result->log;
    json["lowered"] = names_json(result->lowered);
    json["kernels"] = to_json(result->kernels);
  } else {
    json["reason"] = to_json(result.error().reason);
  }
  const std::string text = dump_json(json);
  const std::string_view cubin = result ? std::string_view(result->cubin) : std::string_view{};
  const Sizes sizes{kCacheEntryVersion, static_cast<std::uint32_t>(text.size()), cubin.size()};
  std::string body = text;
  body += cubin;
  std::string bytes(kMagic);
  bytes.append(reinterpret_cast<const char*>(&sizes), sizeof sizes);
  return bytes + content_hash(body) + body;
}

Result<CompileResult> decode_cache_entry(const std::string& key, std::string_view bytes) {
  Sizes sizes;
  if (bytes.size() < kHeaderBytes || !bytes.starts_with(kMagic)) return fail("not an entry of the kernel cache");
  std::memcpy(&sizes, bytes.data() + kMagic.size(), sizeof sizes);
  if (sizes.version != kCacheEntryVersion)
    return fail(fmt::format("an entry of version {}, not {}", sizes.version, kCacheEntryVersion));
  const auto body = bytes.substr(kHeaderBytes);
  if (body.size() < sizes.json_bytes || body.size() - sizes.json_bytes != sizes.cubin_bytes)
    return fail(fmt::format("an entry of {} bytes after its header, not {} and {}", body.size(), sizes.json_bytes,
                            sizes.cubin_bytes));
  if (content_hash(body) != bytes.substr(kHeaderBytes - kHashBytes, kHashBytes))
    return fail("an entry with another hash than its own");
  MOETUNE_TRY(const auto json, parse_json(body.substr(0, sizes.json_bytes)));
  if (!json.is_object() || !json.contains("key") || json["key"] != Json(key))
    return fail("the entry of another kernel");
  return read_result(json, body.substr(sizes.json_bytes));
}

}  // namespace moetune::cuda
