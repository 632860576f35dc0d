#include "shard/formats/litdata/litdata_driver.h"

#include <fmt/format.h>

#include "shard/dataset/name_parts.h"
#include "shard/index/index_file.h"

namespace headrace::detail {
namespace {

// Its index.json is parsed as a whole, in a few times its size: some million chunks.
constexpr std::uint64_t kMostLitDataJsonBytes = std::uint64_t{1} << 30;

// "chunk-0-0.bin", "chunk-0-0.zstd.bin".
bool is_litdata_chunk(std::string_view key) noexcept {
  std::string_view name = base_name(key);
  return take_prefix(name, "chunk-") && take_digits(name) && take_prefix(name, "-") &&
         take_digits(name) && name.starts_with('.') && name.ends_with(".bin");
}

Result<std::string> build_large_litdata(const BuildContext& context, const ObjectInfo& info,
                                        const IndexSource& source) {
  ObjectInfo read;
  auto json = read_object(context.store, context.pool, info.key, kMostLitDataJsonBytes,
                          context.call, &read);
  if (!json) {
    if (json.error().code() != Code::kExhausted) return std::move(json).error();
    return Status(
        Code::kUnsupported,
        fmt::format("{}: has {} bytes; of LitData up to {} are read: write fewer, "
                    "larger chunks",
                    context.store.object_url(info.key), info.size_bytes, kMostLitDataJsonBytes));
  }
  if (read.etag != info.etag)
    return Status(Code::kChanged, context.store.object_url(info.key) + ": has changed");
  return build_litdata_index(context, *json, source);
}

constexpr IndexJsonDriver kLitDataIndexJson{
    .title = "LitData",
    .list = "chunks",
    .remedy = "write the dataset again, as its writer may have been killed before the end",
    .hint = "",
    .build = build_litdata_index,
    .build_large = build_large_litdata,
};

}  // namespace

constinit const FormatDriver kLitDataDriver{
    .id = Format::kLitData,
    .name = "litdata",
    .claims_name = is_litdata_chunk,
    .looks_like = looks_like_litdata,
    .reads = {.tokens = true},
    // A u32 for each size.
    .overhead_bytes = [](const SampleShape& shape) noexcept -> std::optional<std::uint64_t> {
      if (shape.varying_count != 1) return std::nullopt;
      return shape.fixed_bytes + 4 * shape.column_count;
    },
    .index_json = &kLitDataIndexJson,
    .make = make_litdata_dataset,
};

}  // namespace headrace::detail
