#include <algorithm>
#include <map>

#include "headrace/range_fetcher.h"
#include "shard/formats/mds/mds_driver.h"

namespace headrace::detail {
namespace {

// Reads in flight; with kRangeBytes the memory that a file of any size takes.
constexpr std::uint64_t kRanges = 4;
constexpr std::uint64_t kRangeBytes = std::uint64_t{4} << 20;

}  // namespace

Result<MdsIndex> read_mds_index(const BuildContext& context, const ObjectInfo& info) {
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, {.call = context.call}));
  const std::uint64_t range_bytes = context.read_bytes(kRangeBytes);
  const std::uint64_t count = (info.size_bytes + range_bytes - 1) / range_bytes;
  MdsIndexStream stream(context.options.allow_unsafe);
  std::map<std::uint64_t, RangeData> early;
  std::uint64_t started = 0;
  for (std::uint64_t next = 0; next < count;) {
    for (; started < count && started < next + kRanges; ++started) {
      const std::uint64_t offset = started * range_bytes;
      fetcher->start({.key = info.key,
                      .etag = info.etag,
                      .offset_bytes = offset,
                      .length_bytes = std::min(range_bytes, info.size_bytes - offset),
                      .tag = started});
    }
    const auto found = early.find(next);
    if (found == early.end()) {
      HEADRACE_TRY_ASSIGN(auto data, fetcher->next());
      early.emplace(data.tag, std::move(data));
      continue;
    }
    const auto bytes = found->second.bytes();
    HEADRACE_TRY(stream.feed({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    early.erase(found);
    ++next;
  }
  return stream.finish();
}

}  // namespace headrace::detail
