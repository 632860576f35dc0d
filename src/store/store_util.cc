// The helpers of headrace/store.h that need nothing but the Store contract.
#include <algorithm>
#include <cstring>
#include <utility>

#include "headrace/store.h"
#include "store/new_object.h"
#include "store/parallel_list.h"

namespace headrace {
namespace {

// First read: covers most indexes in one request. Pieces: large enough to hide the first-byte time
// of S3 when eight are in flight (8 * 4 MiB per 30 ms is 1 GB/s), small enough for a small pool.
constexpr std::uint64_t kFirstBytes = 256 << 10;
constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;
constexpr std::size_t kPiecesInFlight = 8;
constexpr std::chrono::milliseconds kBackPressurePause{1};

/// The one completion of the one request that was submitted.
Status take_one(Store& handle, const CallOptions& call, Completion& out) {
  while (handle.wait({&out, 1}, TimePoint::max(), call.stop) == 0) {
    if (call.stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
  }
  return std::move(out.status);
}

/// A handle with nothing in flight that takes nothing is stopped, or its store is short of
/// something that others hold: then it is asked again.
Status submit_one(Store& handle, Request&& request, const CallOptions& call) {
  constexpr int kMostTries = 100;
  for (int i = 0; i < kMostTries; ++i) {
    if (handle.submit({&request, 1}) == 1) return {};
    if (call.stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
    Completion none;  // nothing is in flight: a wait of a millisecond that wake() may shorten
    static_cast<void>(
        handle.wait({&none, 1}, system_clock().now() + kBackPressurePause, call.stop));
  }
  return Status(Code::kExhausted, "the store takes no more requests");
}

/// Reads the rest of an object whose first bytes are there, several pieces at a time.
class RestReader {
 public:
  RestReader(Store& handle, SlabPool& pool, const CallOptions& call, const ObjectInfo& info,
             std::string& out)
      : handle_(handle), pool_(pool), call_(call), info_(info), out_(out), next_(out.size()) {
    piece_bytes_ = std::min(kPieceBytes, std::max<std::uint64_t>(pool.limit_bytes() / 4, 16 << 10));
  }

  Status read() {
    out_.resize(info_.size_bytes);
    while (next_ < info_.size_bytes || in_flight_ > 0) {
      while (next_ < info_.size_bytes && in_flight_ < kPiecesInFlight) {
        HEADRACE_TRY_ASSIGN(const bool is_sent, send());
        if (!is_sent) break;
      }
      HEADRACE_TRY(receive());
    }
    return {};
  }

 private:
  /// False when another piece has to come back first.
  Result<bool> send() {
    const std::uint64_t length = std::min(piece_bytes_, info_.size_bytes - next_);
    auto slab = in_flight_ == 0 ? pool_.acquire(length, call_.deadline) : pool_.try_acquire(length);
    if (!slab && in_flight_ > 0 && slab.error().code() == Code::kExhausted) return false;
    if (!slab) return std::move(slab).error();
    Request request;
    request.key = info_.key;
    request.etag = info_.etag;
    request.offset_bytes = next_;
    request.length_bytes = length;
    request.slab = *std::move(slab);
    request.deadline = call_.deadline;
    request.tag = next_;
    if (handle_.submit({&request, 1}) == 0) {
      if (in_flight_ > 0) return false;
      return Status(Code::kExhausted, "the store takes no more requests");
    }
    next_ += length;
    ++in_flight_;
    return true;
  }
  Status receive() {
    Completion done;
    HEADRACE_TRY(take_one(handle_, call_, done));
    --in_flight_;
    std::memcpy(out_.data() + done.tag, done.slab.bytes().data(), done.length_bytes);
    return {};
  }

  Store& handle_;
  SlabPool& pool_;
  const CallOptions& call_;
  const ObjectInfo& info_;
  std::string& out_;
  std::uint64_t next_;
  std::uint64_t piece_bytes_ = 0;
  std::size_t in_flight_ = 0;
};

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
  request.length_bytes = bytes.size();
  request.deadline = call.deadline;
  if (!bytes.empty()) {
    HEADRACE_TRY_ASSIGN(request.slab, pool.acquire(bytes.size(), call.deadline));
    std::memcpy(request.slab.bytes().data(), bytes.data(), bytes.size());
  }
  HEADRACE_TRY(submit_one(*handle, std::move(request), call));
  Completion done;
  HEADRACE_TRY(take_one(*handle, call, done));
  ObjectInfo info;
  info.key = key;
  info.size_bytes = bytes.size();
  info.etag = std::move(done.etag);
  return info;
}

}  // namespace

Result<std::vector<ObjectInfo>> list_all(Store& store, const std::string& prefix,
                                         const CallOptions& call,
                                         const std::function<void(std::uint64_t)>& progress) {
  std::vector<ObjectInfo> all;
  ParallelList list(store, prefix, {}, call);
  while (true) {
    HEADRACE_TRY_ASSIGN(std::vector<ObjectInfo> some, list.next());
    if (progress) progress(all.size() + some.size());
    if (some.empty()) return all;
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
}

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
    request.allow_short = true;
    request.length_bytes =
        std::min({kFirstBytes, pool.limit_bytes(), std::max<std::uint64_t>(max_bytes, 1)});
    HEADRACE_TRY_ASSIGN(request.slab, pool.acquire(request.length_bytes, call.deadline));
    request.deadline = call.deadline;
    const std::uint64_t asked_bytes = request.length_bytes;
    HEADRACE_TRY(submit_one(*handle, std::move(request), call));
    HEADRACE_TRY(take_one(*handle, call, first));
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
  HEADRACE_TRY(RestReader(*handle, pool, call, found, bytes).read());
  if (info != nullptr) *info = found;
  return bytes;
}

Result<ObjectInfo> write_object(Store& store, SlabPool& pool, const std::string& key,
                                std::string_view bytes, const CallOptions& call) {
  return put_object(store, pool, key, bytes, /*if_absent=*/false, call);
}

Result<ObjectInfo> write_new_object(Store& store, SlabPool& pool, const std::string& key,
                                    std::string_view bytes, const CallOptions& call) {
  return put_object(store, pool, key, bytes, /*if_absent=*/true, call);
}

}  // namespace headrace
