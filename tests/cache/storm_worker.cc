// Reads random ranges of the files in a directory through a cache until it is killed, and says so
// when one is wrong. For storm_test.
//
// Usage: storm_worker SOURCE CACHE LIMIT_BYTES SEED
// Files hold what storm_byte() says. Exit code 3: wrong bytes; 4: a read failed or did not end.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/random.h"
#include "cache/storm.h"
#include "headrace/cache.h"
#include "store/file/file_store.h"

namespace headrace {
namespace {

constexpr std::size_t kReadsAtOnce = 8;

int fail(int code, const std::string& why) {
  std::fprintf(stderr, "storm_worker: %s\n", why.c_str());
  return code;
}

struct Read {
  std::string key;
  std::uint64_t file = 0, offset = 0, length = 0;
};

int run(char** arguments) {
  StoreOptions options;
  options.url = std::string("file://") + arguments[1];
  auto files = open_file_store(options);
  if (!files) return fail(4, std::string(files.error().message()));
  auto cache = Cache::open(
      {.directory = arguments[2], .limit_bytes = std::strtoull(arguments[3], nullptr, 10)});
  if (!cache) return fail(4, std::string(cache.error().message()));
  std::vector<std::string> etags;
  for (std::uint64_t file = 0; file < kStormFiles; ++file) {
    auto info = (*files)->head(storm_key(file));
    if (!info) return fail(4, std::string(info.error().message()));
    etags.push_back(info->etag);
  }
  const auto pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
  const auto store = cache_reads(*std::move(files), *cache);
  Random random(std::strtoull(arguments[4], nullptr, 10));
  std::vector<Read> reads(kReadsAtOnce);
  const auto ask = [&](std::size_t i) {
    Read& read = reads[i];
    read.file = random.below(kStormFiles);
    read.key = storm_key(read.file);
    read.offset = random.below(kStormFileBytes / kStormGrid) * kStormGrid;
    read.length = kStormGrid;
    Request request;
    request.key = read.key;
    request.etag = etags[read.file];
    request.offset_bytes = read.offset;
    request.length_bytes = read.length;
    request.slab = *pool->acquire(read.length, TimePoint::max());
    request.tag = i;
    request.fresh_connection = random.below(50) == 0;
    while (store->submit({&request, 1}) == 0) ::usleep(100);
  };
  for (std::size_t i = 0; i < kReadsAtOnce; ++i) ask(i);
  std::puts("ready");
  std::fflush(stdout);
  while (true) {
    Completion done;
    if (store->wait({&done, 1}, system_clock().now() + std::chrono::seconds(60)) == 0)
      return fail(4, "a read did not end");
    if (!done.status.ok()) return fail(4, std::string(done.status.message()));
    const Read& read = reads[done.tag];
    const auto bytes = done.slab.bytes();
    for (std::uint64_t i = 0; i < read.length; i += 997) {
      if (bytes[i] != storm_byte(read.file, read.offset + i)) return fail(3, "wrong bytes");
    }
    ask(done.tag);
  }
}

}  // namespace
}  // namespace headrace

int main(int count, char** arguments) { return count == 5 ? headrace::run(arguments) : 2; }
