#include "shard/build.h"

namespace headrace::detail {

std::string build_raw_index(const BuildContext& context, const std::vector<ObjectInfo>& objects) {
  IndexWriter writer;
  std::vector<std::uint64_t> bounds;
  bounds.reserve(objects.size() + 1);
  std::uint64_t end = 0;
  bounds.push_back(end);
  for (const ObjectInfo& object : objects) {
    writer.add_object(object.key, object.etag, object.size_bytes);
    bounds.push_back(end += object.size_bytes);
  }
  // One shard for everything: files have no grouping of their own, and blocks come from sizes.
  ShardRecord shard;
  shard.sample_count = objects.size();
  shard.stored_bytes = shard.raw_bytes = end;
  shard.bounds = writer.bounds().append(bounds);
  writer.add_shard(shard);
  Column data{.name = "data", .encoding = "bytes", .dtype = {}, .shape = {}};
  Column key{.name = "key", .encoding = "str", .dtype = {}, .shape = {}};
  IndexSource source;
  if (!objects.empty()) source = {objects[0].key, objects[0].etag, objects[0].size_bytes};
  context.report(1, 1);
  return writer.finish({.format = Format::kRaw,
                        .columns = {std::move(data), std::move(key)},
                        .source = std::move(source),
                        .block_bytes = context.options.block_bytes});
}

}  // namespace headrace::detail
