// Small objects as a whole: read_object(), write_object() of headrace/store.h and
// write_new_object().
#include <algorithm>
#include <cstring>
#include <utility>

#include "headrace/range_fetcher.h"
#include "headrace/store.h"
#include "io/new_object.h"
#include "store/submit_queue.h"

namespace headrace {
namespace {

// First read: covers most indexes in one request. Pieces: large enough to hide the first-byte time
// of S3 when eight are in flight (8 * 4 MiB per 30 ms is 1 GB/s), small enough for a small pool.
constexpr std::uint64_t kFirstBytes = 256 << 10;
constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;
constexpr std::size_t kPiecesInFlight = 8;

/// Reads the rest of an object whose first bytes are in `out`, several pieces at a time.
Status read_rest(Store& handle, SlabPool& pool, const CallOptions& call, const ObjectInfo& info,
                 std::string& out) {
  const std::uint64_t piece_bytes =
      std::min(kPieceBytes, std::max<std::uint64_t>(pool.limit_bytes() / 4, 16 << 10));
  const std::uint64_t begin = out.size();
  out.resize(info.size_bytes);
  RangeFetcher fetcher(handle, pool, {.call = call, .max_in_flight = kPiecesInFlight});
  for (std::uint64_t at = begin; at < info.size_bytes; at += piece_bytes) {
    fetcher.start({.key = info.key,
                   .etag = info.etag,
                   .offset_bytes = at,
                   .length_bytes = std::min(piece_bytes, info.size_bytes - at),
                   .tag = at});
  }
  while (fetcher.pending() > 0) {
    HEADRACE_TRY_ASSIGN(const RangeData data, fetcher.next());
    std::memcpy(out.data() + data.tag, data.bytes().data(), data.length_bytes);
  }
  return {};
}

Status too_large(Store& store, const std::string& key, std::uint64_t size_bytes,
                 std::uint64_t max_bytes) {
  return Status(Code::kExhausted, store.object_url(key) + " has " + std::to_string(size_bytes) +
                                      " bytes, more than the " + std::to_string(max_bytes) +
                                      " that are expected here");
}

Result<ObjectInfo> put_object(Store& store, SlabPool& pool, const std::string& key,
                              std::string_view bytes, bool if_absent, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(const std::unique_ptr<Store> handle, store.new_handle());
  Request request;
  request.op = Op::kPut;
  request.key = key;
  request.if_absent = if_absent;
  request.settings = call.settings;
  request.length_bytes = bytes.size();
  request.deadline = call.deadline;
  if (!bytes.empty()) {
    HEADRACE_TRY_ASSIGN(request.slab, pool.acquire(bytes.size(), call.deadline));
    std::memcpy(request.slab.bytes().data(), bytes.data(), bytes.size());
  }
  Completion done = run_request(*handle, std::move(request), call.stop);
  HEADRACE_TRY(std::move(done.status));
  ObjectInfo info;
  info.key = key;
  info.size_bytes = bytes.size();
  info.etag = std::move(done.etag);
  return info;
}

}  // namespace

Result<std::string> read_object(Store& store, SlabPool& pool, const std::string& key,
                                std::uint64_t max_bytes, const CallOptions& call,
                                ObjectInfo* info) {
  ObjectInfo found;
  found.key = key;
  std::string bytes;
  // Declared last: destroyed first, and then nothing refers to the key and version any more.
  HEADRACE_TRY_ASSIGN(const std::unique_ptr<Store> handle, store.new_handle());
  Completion first;
  {
    Request request;
    request.key = found.key;
    request.version_id = call.version_id;
    request.allow_short = true;
    request.length_bytes =
        std::min({kFirstBytes, pool.limit_bytes(), std::max<std::uint64_t>(max_bytes, 1)});
    HEADRACE_TRY_ASSIGN(request.slab, pool.acquire(request.length_bytes, call.deadline));
    request.deadline = call.deadline;
    const std::uint64_t asked_bytes = request.length_bytes;
    first = run_request(*handle, std::move(request), call.stop);
    HEADRACE_TRY(std::move(first.status));
    found.etag = first.etag;
    found.size_bytes =
        first.length_bytes < asked_bytes ? first.length_bytes : first.object_size_bytes;
    // Not told: the size by some servers, the version of an empty object by all that answer 416.
    if (found.size_bytes < first.length_bytes || (found.etag.empty() && info != nullptr)) {
      HEADRACE_TRY_ASSIGN(found, store.head(key, call));
      const bool is_same =
          found.etag == first.etag || (first.etag.empty() && found.size_bytes == 0);
      if (!is_same)
        return Status(Code::kChanged, store.object_url(key) + ": changed while being read");
    }
  }
  if (found.size_bytes > max_bytes) return too_large(store, key, found.size_bytes, max_bytes);
  if (first.length_bytes > 0) {
    bytes.assign(reinterpret_cast<const char*>(first.slab.bytes().data()), first.length_bytes);
  }
  first.slab = Slab();
  HEADRACE_TRY(read_rest(*handle, pool, call, found, bytes));
  if (info != nullptr) *info = found;
  return bytes;
}

Result<ObjectInfo> write_object(Store& store, SlabPool& pool, const std::string& key,
                                std::string_view bytes, const CallOptions& call) {
  return put_object(store, pool, key, bytes, /*if_absent=*/false, call);
}

namespace io {

Result<ObjectInfo> write_new_object(Store& store, SlabPool& pool, const std::string& key,
                                    std::string_view bytes, const CallOptions& call) {
  return put_object(store, pool, key, bytes, /*if_absent=*/true, call);
}

}  // namespace io

}  // namespace headrace
