#include "shard/formats/webdataset/side_index.h"

#include <map>

namespace headrace::detail {

Status read_side_indexes(const BuildContext& context, const std::vector<ObjectInfo>& objects,
                         RangeFetcher& fetcher, std::uint64_t most_bytes,
                         const std::function<std::string(const std::string& key)>& key_of,
                         const std::function<void(std::size_t, std::span<const std::byte>)>& take) {
  std::map<std::string_view, const ObjectInfo*> beside;
  for (const ObjectInfo& object : context.side_files) beside[object.key] = &object;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const auto at = beside.find(key_of(objects[i].key));
    if (at == beside.end() || at->second->size_bytes == 0 || at->second->size_bytes > most_bytes)
      continue;
    fetcher.start({.key = at->second->key,
                   .etag = at->second->etag,
                   .length_bytes = at->second->size_bytes,
                   .tag = i});
  }
  while (fetcher.pending() > 0) {
    HEADRACE_TRY_ASSIGN(const RangeData data, fetcher.next());
    take(data.tag, data.bytes());
  }
  return Status();
}

}  // namespace headrace::detail
