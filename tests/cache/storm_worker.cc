// Reads random ranges of the files in a directory through a cache until it is killed, and ends when
// one is wrong. For storm_test.
//
// Usage: storm_worker SOURCE CACHE LIMIT_BYTES FREE_FLOOR_BYTES JOB SEED
// Files hold what storm_byte() says. Writes a line once it has read something, then a point now and
// then. A directory that cannot be opened is tried again. Job 0 knows no order; others tell theirs.
// Exit code 3: wrong bytes; 4: a read failed or did not end.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "cache/storm.h"
#include "headrace/cache.h"
#include "store/file/file_store.h"

namespace headrace {
namespace {

constexpr std::size_t kReadsAtOnce = 8;
constexpr std::uint64_t kCells = kStormFiles * (kStormFileBytes / kStormGrid);

int fail(int code, const std::string& why) {
  std::fprintf(stderr, "storm_worker: %s\n", why.c_str());
  return code;
}

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

class Worker {
 public:
  Worker(std::unique_ptr<Store> store, std::vector<std::string> etags, bool knows_order,
         std::uint64_t seed)
      : pool_(*SlabPool::create({.limit_bytes = std::uint64_t{64} << 20})),
        store_(std::move(store)),
        etags_(std::move(etags)),
        knows_order_(knows_order),
        random_(seed),
        reads_(kReadsAtOnce) {
    for (std::uint64_t file = 0; file < kStormFiles; ++file) keys_.push_back(storm_key(file));
  }

  int run() {
    for (std::size_t i = 0; i < kReadsAtOnce; ++i) ask(i);
    for (std::uint64_t count = 1;; ++count) {
      Completion done;
      if (store_->wait({&done, 1}, system_clock().now() + std::chrono::seconds(60)) == 0)
        return fail(4, "a read did not end");
      if (!done.status.ok()) return fail(4, std::string(done.status.message()));
      const std::uint64_t cell = reads_[done.tag];
      const auto bytes = done.slab.bytes();
      for (std::uint64_t i = 0; i < length_of(cell); i += 61) {
        if (bytes[i] != storm_byte(file_of(cell), offset_of(cell) + i))
          return fail(3, "wrong bytes");
      }
      if (count == kReadsAtOnce) static_cast<void>(!::write(1, "ready\n", 6));
      if (count % 64 == 0) static_cast<void>(!::write(1, ".", 1));  // Full: nobody is listening.
      ask(done.tag);
    }
  }

 private:
  static std::uint64_t file_of(std::uint64_t cell) { return cell % kStormFiles; }
  /// Of every other file, two cells are one.
  static std::uint64_t length_of(std::uint64_t cell) {
    return file_of(cell) % 2 == 0 ? kStormGrid : 2 * kStormGrid;
  }
  static std::uint64_t offset_of(std::uint64_t cell) {
    return cell / kStormFiles * kStormGrid / length_of(cell) * length_of(cell);
  }

  /// An epoch is half of all cells, in an order of its own.
  void begin_epoch() {
    order_.resize(kCells);
    for (std::uint64_t i = 0; i < kCells; ++i) order_[i] = i;
    for (std::uint64_t i = kCells; i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
    order_.resize(kCells / 2);
    if (!knows_order_) return;
    std::vector<ForeseenRead> reads;
    for (std::uint64_t i = 0; i < order_.size(); ++i) {
      if (order_[i] / kStormFiles * kStormGrid != offset_of(order_[i])) continue;  // Its second.
      reads.push_back({.key = keys_[file_of(order_[i])],
                       .etag = etags_[file_of(order_[i])],
                       .offset_bytes = offset_of(order_[i]),
                       .length_bytes = length_of(order_[i]),
                       .first = static_cast<std::uint32_t>(i)});
    }
    store_->foresee(reads, store_->read_count());
  }

  void ask(std::size_t i) {
    if (order_.empty()) begin_epoch();
    reads_[i] = order_.back();
    order_.pop_back();
    Request request;
    request.key = keys_[file_of(reads_[i])];
    request.etag = etags_[file_of(reads_[i])];
    request.offset_bytes = offset_of(reads_[i]);
    request.length_bytes = length_of(reads_[i]);
    request.slab = *pool_->acquire(request.length_bytes, TimePoint::max());
    request.tag = i;
    request.fresh_connection = random_.below(50) == 0;
    while (store_->submit({&request, 1}) == 0) ::usleep(100);
  }

  std::unique_ptr<SlabPool> pool_;
  std::unique_ptr<Store> store_;
  const std::vector<std::string> etags_;
  std::vector<std::string> keys_;
  const bool knows_order_;
  Random random_;
  std::vector<std::uint64_t> order_, reads_;
};

int run(char** arguments) {
  StoreOptions options;
  options.url = std::string("file://") + arguments[1];
  auto files = open_file_store(options);
  if (!files) return fail(4, std::string(files.error().message()));
  std::vector<std::string> etags;
  for (std::uint64_t file = 0; file < kStormFiles; ++file) {
    auto info = (*files)->head(storm_key(file));
    if (!info) return fail(4, std::string(info.error().message()));
    etags.push_back(info->etag);
  }
  const CacheOptions cache_options{.directory = arguments[2],
                                   .limit_bytes = number(arguments[3]),
                                   .free_floor_bytes = number(arguments[4])};
  auto cache = Cache::open(cache_options);
  for (; !cache; cache = Cache::open(cache_options)) ::usleep(1000);
  ::fcntl(1, F_SETFL, O_NONBLOCK);
  return Worker(cache_reads(*std::move(files), *cache), std::move(etags), number(arguments[5]) != 0,
                number(arguments[6]))
      .run();
}

}  // namespace
}  // namespace headrace

int main(int count, char** arguments) { return count == 7 ? headrace::run(arguments) : 2; }
