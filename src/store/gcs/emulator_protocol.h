#pragma once
/// \file
/// EmulatorProtocol: requests and answers of Google's JSON API for the transfer engine, for
/// emulators. No I/O.
///
/// Threads: any; immutable but for the set of uploads under way.
#include <set>
#include <string>

#include "base/mutex.h"
#include "store/gcs/gcs_config.h"
#include "store/vendor/configured_protocol.h"

namespace headrace::gcs {

class EmulatorProtocol final : public vendor::ConfiguredProtocol<GcsConfig> {
 public:
  /// `seed` tells the uploads of this store from those of others.
  EmulatorProtocol(GcsConfig config, std::uint64_t seed)
      : ConfiguredProtocol(std::move(config)), seed_(seed) {}

  /// Errors also: kChanged (Request::etag is no generation), kNotFound (no such upload).
  Status append_head(const Request& request, const HeadContext& context, std::string& out) override;
  /// HttpCall::path is escaped and starts with '/'.
  Status append_head(const HttpCall& call, const HeadContext& context, std::string& out) override;
  Status error_from(std::string_view what, const http::ResponseHead& head,
                    std::string_view body) override;
  std::string_view version_of(const Request& request,
                              const http::ResponseHead& head) const override;
  /// Answers to uploads name the generation in their JSON.
  void append_version(const Request& request, const http::ResponseHead& head, std::string_view body,
                      std::string& out) const override;

  std::shared_ptr<const ObjectDetails> details_of(const http::ResponseHead& head) const override;

  /// Errors: kInvalidArgument, kUnsupported (all but type and encoding).
  static Status check_settings(const ObjectSettings& settings);
  /// Those of a write, in the store's config, in `given` or in `room`. Errors: those of
  /// check_settings().
  Result<const ObjectSettings*> settings_of_write(const ObjectSettings* given,
                                                  ObjectSettings& room) const;

  /// "/storage/v1/b/bucket/o", and with a whole key "/storage/v1/b/bucket/o/key".
  std::string objects_path() const;
  std::string object_path(std::string_view whole_key) const;
  static std::string part_key(std::string_view upload_id, std::uint32_t part_number);

  /// Returns its id.
  std::string begin_upload() HEADRACE_EXCLUDES(mutex_);
  bool has_upload(std::string_view id) const HEADRACE_EXCLUDES(mutex_);
  bool forget_upload(const std::string& id) HEADRACE_EXCLUDES(mutex_);

 private:
  const std::uint64_t seed_;
  mutable Mutex mutex_;
  std::uint64_t upload_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::set<std::string, std::less<>> uploads_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::gcs
