// Invariant: parts_ has an entry for every part that was sent, at number - 1, so what the store is
// told at the end is in order whatever the order of arrival. The requests point to key_ and
// upload_id_: the destructor takes every completion before those go.
#include "io/uploader.h"

#include "store/clean_up_options.h"
#include "store/upload_parts.h"

namespace headrace::io {

Result<std::unique_ptr<Uploader>> Uploader::begin(Store& store, Store& handle, std::string key,
                                                  Options options) {
  std::unique_ptr<Uploader> uploader(
      new Uploader(store, handle, std::move(key), std::move(options)));
  HEADRACE_TRY_ASSIGN(uploader->upload_id_,
                      store.create_upload(uploader->key_, uploader->options_.call));
  return uploader;
}

Uploader::~Uploader() {
  static_cast<void>(queue_.take_back_all());
  for (std::size_t i = 1; i <= parts_.size() && queue_.in_flight() > 0; ++i) handle_.cancel(i);
  queue_.drain();
  if (!is_finished_ && !upload_id_.empty())
    static_cast<void>(store_.abort_upload(key_, upload_id_, clean_up_options()));
}

Status Uploader::put(Slab slab, std::uint64_t length_bytes) {
  while (queue_.pending() >= options_.max_in_flight) HEADRACE_TRY(wait_one());
  const std::uint32_t most = store_.traits().max_parts;
  if (parts_.size() >= most) {
    return Status(Code::kUnsupported, store_.object_url(key_) + ": is longer than " +
                                          std::to_string(most) + " parts; give a larger part size");
  }
  const auto number = static_cast<std::uint32_t>(parts_.size() + 1);
  parts_.push_back({.part_number = number, .etag = {}, .size_bytes = length_bytes});
  Request request;
  request.op = Op::kPutPart;
  request.key = key_;
  request.upload_id = upload_id_;
  request.part_number = number;
  request.length_bytes = length_bytes;
  request.slab = std::move(slab);
  request.deadline = options_.call.deadline;
  request.tag = number;
  queue_.push(std::move(request));
  queue_.flush();
  return {};
}

Status Uploader::wait_one() {
  Completion done;
  while (true) {
    const TimePoint until = options_.pause ? system_clock().now() + kPauseSlice : TimePoint::max();
    HEADRACE_TRY_ASSIGN(const std::size_t count,
                        queue_.wait({&done, 1}, until, options_.call.stop));
    if (count == 1) break;
    if (options_.pause) options_.pause();
  }
  HEADRACE_TRY(std::move(done.status));
  UploadedPart& part = parts_[done.tag - 1];
  part = arrived_part(part.part_number, part.size_bytes, done);
  return {};
}

Result<Slab> Uploader::acquire(SlabPool& pool, std::uint64_t size_bytes) {
  while (in_flight() > 0) {
    auto slab = pool.try_acquire(size_bytes);
    if (slab || slab.error().code() != Code::kExhausted) return slab;
    HEADRACE_TRY(wait_one());
  }
  return options_.acquire ? options_.acquire(size_bytes)
                          : pool.acquire(size_bytes, options_.call.deadline);
}

Result<ObjectInfo> Uploader::finish() {
  while (in_flight() > 0) HEADRACE_TRY(wait_one());
  auto info = store_.complete_upload(key_, upload_id_, parts_, options_.call);
  is_finished_ = info.has_value();
  return info;
}

}  // namespace headrace::io
