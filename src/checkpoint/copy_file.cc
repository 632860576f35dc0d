// Parts are read ahead from one store and handed to a sink of the other; each is summed in between,
// and the sum of all compared before the object appears.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "checkpoint/part_sink.h"
#include "checkpoint/written_check.h"
#include "headrace/checkpoint.h"

namespace headrace::checkpoint {
namespace {

constexpr std::size_t kPartsRead = 4;

}  // namespace

Result<std::string> copy_file(StoreClient& from, const std::string& from_key,
                              const std::shared_ptr<StoreClient>& to, const std::string& to_key,
                              std::uint64_t size_bytes, std::uint32_t crc32c_wanted,
                              const WriteOptions& options, const Pause& pause) {
  const std::uint64_t part_bytes =
      std::max(options.part_bytes, (size_bytes + kMostParts - 1) / kMostParts);
  const auto count = static_cast<std::uint32_t>((size_bytes + part_bytes - 1) / part_bytes);
  const auto length_of = [&](std::uint64_t part) {
    return std::min(part_bytes, size_bytes - part * part_bytes);
  };
  HEADRACE_TRY_ASSIGN(const auto sink, make_sink(to, {.key = to_key,
                                                      .size_bytes = size_bytes,
                                                      .part_bytes = part_bytes,
                                                      .part_count = count,
                                                      .parts_in_flight = options.parts_in_flight}));
  std::vector<std::uint32_t> sums(count);
  RangeFetcher::Options reading = from.read_options(pause);
  reading.max_in_flight = kPartsRead;
  // Parts on their way out give theirs back.
  reading.acquire = [&](std::size_t part_size) -> Result<Slab> {
    while (true) {
      HEADRACE_TRY(sink->failure());
      auto slab = from.pool()->acquire(part_size, system_clock().now() + kPauseSlice);
      if (slab || slab.error().code() != Code::kDeadline) return slab;
      if (pause) pause();
    }
  };
  Status read = from.read(std::move(reading), [&](RangeFetcher& fetcher) -> Status {
    for (std::uint64_t part = 0; part < count; ++part) {
      fetcher.start({.key = from_key,
                     .etag = {},
                     .offset_bytes = part * part_bytes,
                     .length_bytes = length_of(part),
                     .tag = part});
    }
    while (fetcher.pending() > 0) {
      HEADRACE_TRY(sink->failure());
      HEADRACE_TRY_ASSIGN(RangeData data, fetcher.next());
      sums[data.tag] = crc32c(data.bytes());
      sink->put(static_cast<std::uint32_t>(data.tag), std::move(data.slab), data.length_bytes);
    }
    return {};
  });
  HEADRACE_TRY(std::move(read));
  std::uint32_t sum = 0;
  for (std::uint32_t part = 0; part < count; ++part)
    sum = crc32c_combine(sum, sums[part], length_of(part));
  if (sum != crc32c_wanted) {
    return Status(Code::kCorrupt, from.store().object_url(from_key) +
                                      ": its bytes do not match their CRC32C: it was not copied");
  }
  HEADRACE_TRY_ASSIGN(std::string etag, sink->finish(count, pause));
  HEADRACE_TRY(check_written(*to, to_key, etag, size_bytes, sum, options.check, pause));
  return etag;
}

}  // namespace headrace::checkpoint
