#pragma once
/// \file
/// Uploader: one object written in parts, many of them in flight; nothing is visible unless all
/// have arrived. The one driver of multipart uploads whose parts come from one place in order.
///
/// Place: src/io/, over any Store. (copy/ moves parts of one upload between threads and runs,
/// checkpoint/ takes them in any order from threads and processes; each drives its own. Why:
/// docs/design/0037.)
///
/// Threads: one owner.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/range_fetcher.h"
#include "headrace/store.h"
#include "store/submit_queue.h"

namespace headrace::io {

class Uploader {
 public:
  struct Options {
    /// Of each request; `stop` is looked at while there is something to wait for.
    CallOptions call = {};
    std::size_t max_in_flight = 8;
    Pause pause = {};
    /// Asked for memory when no part is in flight and the pool has none; empty: waits for the pool.
    std::function<Result<Slab>(std::size_t size_bytes)> acquire = {};
  };

  /// Begins the upload of `key` in `store`; parts go over `handle`, with which nothing else is done
  /// until finish() has returned or the uploader is gone. Errors: those of Store::create_upload().
  static Result<std::unique_ptr<Uploader>> begin(Store& store, Store& handle, std::string key,
                                                 Options options);
  /// Aborts the upload unless it was finished. An upload that cannot be aborted is the store's to
  /// expire: the first failure is the one to report.
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  /// Sends the next part, the first `length_bytes` of `slab`; all parts but the last must have
  /// StoreTraits::min_part_bytes. Waits while max_in_flight parts are under way. Errors: those of
  /// kPutPart, of this part or an earlier one; kUnsupported (more parts than the store takes).
  Status put(Slab slab, std::uint64_t length_bytes);
  std::size_t in_flight() const noexcept { return queue_.pending(); }
  /// Waits for a part to arrive. \pre in_flight() > 0. Errors: those of kPutPart.
  Status wait_one();
  /// Memory for the next part; while the pool has none, waits for parts to arrive and give theirs
  /// back. Errors: those of put() and of the pool.
  Result<Slab> acquire(SlabPool& pool, std::uint64_t size_bytes);
  /// Waits for all parts, and makes the object visible. Errors: those of put() and of
  /// Store::complete_upload().
  Result<ObjectInfo> finish();

 private:
  Uploader(Store& store, Store& handle, std::string key, Options options)
      : store_(store),
        handle_(handle),
        key_(std::move(key)),
        options_(std::move(options)),
        queue_(handle) {}

  Store& store_;
  Store& handle_;
  const std::string key_;
  const Options options_;
  std::string upload_id_;
  SubmitQueue queue_;
  std::vector<UploadedPart> parts_;  ///< By number; those in flight without an ETag.
  bool is_finished_ = false;
};

}  // namespace headrace::io
