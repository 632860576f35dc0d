#pragma once
/// \file
/// StoreClient::Upload: an object that is written part by part, as its bytes come to be, several
/// parts in flight. Nothing is visible before finish() has succeeded.
///
/// Place: src/io/, beside the other calls of StoreClient; for files that are open for writing.
/// (Bytes that are all there already: StoreClient::upload().)
///
/// Threads: one at a time; cancel() from any.
#include <memory>
#include <span>
#include <stop_token>
#include <string>

#include "headrace/store_client.h"

namespace headrace {

namespace io {
class Uploader;
}

class StoreClient::Upload {
 public:
  /// Does not contact the store. `client` is kept alive; `pause` is called by put() and finish();
  /// `settings`: as Request::settings. Errors: kCancelled (the client is closed).
  static Result<std::unique_ptr<Upload>> create(std::shared_ptr<StoreClient> client,
                                                std::string key, Pause pause,
                                                ObjectSettings settings = {});
  /// Aborts the upload unless it was finished: contacts the store.
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  /// Begins the upload. Errors: those of Store::create_upload(). \pre called once, before put().
  Status begin();
  /// Sends the next part: copies it, and waits while eight parts are under way or the client's
  /// memory is used up. All parts but the last have StoreTraits::min_part_bytes at least. Errors:
  /// those of kPutPart, of this part or an earlier one, and of StoreClient::acquire(). After an
  /// error, or when `pause` threw, the upload cannot go on: every call returns kCancelled.
  Status put(std::span<const std::byte> part);
  /// Waits for all parts, and makes the object visible. Errors: those of put() and of
  /// Store::complete_upload().
  Result<ObjectInfo> finish();

  /// Makes the call in progress, and every later one, end with kCancelled soon. Any thread.
  void cancel() noexcept { stop_.request_stop(); }

 private:
  Upload(std::shared_ptr<StoreClient> client, std::string key, Pause pause);
  Status send(std::span<const std::byte> part);

  const std::shared_ptr<StoreClient> client_;
  const std::string key_;
  const Pause pause_;
  ObjectSettings settings_;
  std::stop_source stop_;
  Lease lease_;                             // Of *client_.
  std::unique_ptr<io::Uploader> uploader_;  // On the lease's handle; goes before it.
  bool is_broken_ = false;                  // A part is missing: must not be finished.
};

}  // namespace headrace
