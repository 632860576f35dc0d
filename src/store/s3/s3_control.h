#pragma once
/// \file
/// S3Control: the control-plane half of the Store contract over S3. Private to s3/.
///
/// Threads: any; every function blocks.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "headrace/store.h"
#include "store/s3/s3_protocol.h"
#include "store/transfer/transfer_engine.h"

namespace headrace::s3 {

/// Size, ETag and time from the head of an answer to HEAD. Errors: kCorrupt.
Result<ObjectInfo> object_info(const std::string& key, const HttpAnswer& answer);

class S3Control {
 public:
  S3Control(std::shared_ptr<S3Protocol> protocol, std::shared_ptr<TransferEngine> engine);

  // As in class Store.
  Result<ObjectInfo> head(const std::string& key, const CallOptions& call);
  Result<ListPage> list(const ListRequest& request, const CallOptions& call);
  Status remove(const std::string& key, const CallOptions& call);
  std::vector<Status> remove_many(std::span<const std::string> keys, const CallOptions& call);
  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call);
  Result<ObjectInfo> set_storage_class(const std::string& key, const std::string& storage_class,
                                       const CallOptions& call);
  Result<std::string> create_upload(const std::string& key, const CallOptions& call);
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts, const CallOptions& call);
  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call);
  Result<std::vector<UploadedPart>> list_parts(const std::string& key, const std::string& upload_id,
                                               const CallOptions& call);
  Result<std::vector<PendingUpload>> list_uploads(const std::string& prefix,
                                                  const CallOptions& call);
  const StoreTraits& traits() const noexcept { return traits_; }

 private:
  std::string url_of(std::string_view key) const;
  Result<HttpCall> object_call(const char* method, const std::string& key) const;
  std::string copy_source(const std::string& key, const std::string& version_id) const;
  /// kUnsupported when the store answers about another version than CallOptions::version_id: it
  /// would delete that. Marks of deletion cannot be asked for.
  Status check_version(const std::string& key, const CallOptions& call);
  std::vector<Status> remove_each(std::span<const std::string> keys, const CallOptions& call);
  /// What a copy says of its target besides the key: in `http`, and where it replaces some of the
  /// source's settings, all of those that remain.
  Status add_settings(const std::string& from_key, const CallOptions& call, HttpCall& http);
  /// Deletes up to 1,000 keys that XML can hold. kUnsupported: the store does not know how.
  Status remove_batch(std::span<const std::string> keys, std::span<Status> results,
                      const CallOptions& call);
  /// The parts with the checksums that the store has for them, where the caller gives none.
  std::vector<UploadedPart> with_checksums(const std::string& key, const std::string& upload_id,
                                           std::span<const UploadedPart> given,
                                           const CallOptions& call);
  Result<std::optional<ObjectInfo>> find_completed(const std::string& key,
                                                   std::span<const UploadedPart> parts,
                                                   const CallOptions& call);
  /// create_upload() of an object with these tags, in the form of tags_of().
  Result<std::string> create_tagged_upload(const std::string& key, const std::string& tags,
                                           const CallOptions& call);
  /// The object's tags as x-amz-tagging takes them; empty: none. kUnsupported: they are there and
  /// may not be read.
  Result<std::string> tags_of(const ObjectInfo& from, const CallOptions& call);
  Status copy_parts(const ObjectInfo& from, const std::string& to_key, const std::string& upload_id,
                    std::vector<UploadedPart>& parts, const CallOptions& call);
  /// A copy by parts. Unlike the one request that copies all, it takes over only what it is told:
  /// settings and tags.
  Result<ObjectInfo> copy_large(const ObjectInfo& from, const std::string& to_key,
                                const CallOptions& call);

  const std::shared_ptr<S3Protocol> protocol_;
  const std::shared_ptr<TransferEngine> engine_;
  const StoreTraits traits_;
  // The store has said that it knows no DeleteObjects. Relaxed: a late reader asks once more.
  std::atomic<bool> has_no_batches_{false};
};

}  // namespace headrace::s3
