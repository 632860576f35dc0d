// The store's own sum of the object where it tells one; else all of it is read. A file of this
// machine was written and synchronised by counted calls.
#include "checkpoint/written_check.h"

#include <utility>

namespace headrace::checkpoint {
namespace {

/// What the store says that it has; of kind kNone where it says nothing.
Result<Checksum> sum_of_store(StoreClient& client, const std::string& key, const std::string& etag,
                              const Pause& pause) {
  const ObjectSums where = client.store().traits().object_sums;
  if (where != ObjectSums::kHead && where != ObjectSums::kEveryGet) return Checksum();
  Request request;
  request.op = Op::kHead;
  request.key = key;
  request.etag = etag;
  if (where == ObjectSums::kEveryGet) {  // The answer to a read of one byte tells it.
    request.op = Op::kGet;
    request.length_bytes = 1;
    HEADRACE_TRY_ASSIGN(request.slab, client.acquire(1, pause));
  }
  Completion done = client.run(
      std::move(request), pause ? pause : [] {});
  if (done.status.code() == Code::kUnsupported || done.status.code() == Code::kDenied)
    return Checksum();
  HEADRACE_TRY(std::move(done.status));
  return done.object_checksum;
}

Status compare(StoreClient& client, const std::string& key, const std::string& etag,
               std::uint64_t size_bytes, std::uint32_t crc32c, WrittenCheck check,
               const Pause& pause) {
  if (check == WrittenCheck::kAuto) {
    if (!client.store().local_directory().empty()) return {};
    HEADRACE_TRY_ASSIGN(const Checksum told, sum_of_store(client, key, etag, pause));
    if (told.kind == ChecksumKind::kCrc32c) {
      if (static_cast<std::uint32_t>(told.value) == crc32c) return {};
      return Status(Code::kCorrupt,
                    client.store().object_url(key) + ": the store has other bytes than were sent");
    }
  }
  return verify_file(client, key, size_bytes, crc32c, pause);
}

}  // namespace

Status prove_file(StoreClient& client, const std::string& key, std::uint64_t size_bytes,
                  std::uint32_t crc32c, const Pause& pause) {
  return compare(client, key, "", size_bytes, crc32c, WrittenCheck::kAuto, pause);
}

Status check_written(StoreClient& client, const std::string& key, const std::string& etag,
                     std::uint64_t size_bytes, std::uint32_t crc32c, WrittenCheck check,
                     const Pause& pause) {
  if (check == WrittenCheck::kNone) return {};
  Status status = compare(client, key, etag, size_bytes, crc32c, check, pause);
  if (!status.ok()) static_cast<void>(client.store().remove(key));
  return status;
}

}  // namespace headrace::checkpoint
