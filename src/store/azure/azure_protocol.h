#pragma once
/// \file
/// AzureProtocol: the Blob service's requests and answers for the transfer engine. No I/O. Header
/// fields go out in lower case and sorted, so that what is signed and what is sent are the same
/// bytes.
///
/// Threads: any; immutable but for the signer's own pool, the aborted uploads and the token that
/// was used last.
#include <memory>
#include <string>

#include "base/mutex.h"
#include "store/azure/azure_config.h"
#include "store/azure/azure_settings.h"
#include "store/azure/azure_uploads.h"
#include "store/vendor/configured_protocol.h"

namespace headrace::azure {

class HeadBuilder;

/// Version of the REST API that every request names. 2021-12-02: escaped names in listings, blocks
/// of 4,000 MiB; old enough for every stack and emulator.
constexpr std::string_view kApiVersion = "2021-12-02";

class AzureProtocol final : public vendor::ConfiguredProtocol<AzureConfig> {
 public:
  using ConfiguredProtocol::ConfiguredProtocol;

  /// What is written carries its CRC-64, which the service checks before it keeps the bytes (0.1 ms
  /// per MiB). Errors also: kInvalidArgument (key), kNotFound (a part
  /// of an upload that was aborted, or whose id is none of ours), kUnsupported (redirects: the
  /// service sends none).
  Status append_head(const Request& request, const HeadContext& context, std::string& out) override;
  /// HttpCall::path is the whole key, prefix included; empty for the container.
  Status append_head(const HttpCall& call, const HeadContext& context, std::string& out) override;

  Status error_from(std::string_view what, const http::ResponseHead& head,
                    std::string_view body) override;
  Checksum checksum_of(const Request& request, const http::ResponseHead& head) const override;
  bool names_what_it_wrote(const Request& request) const noexcept override {
    return request.op == Op::kPut;  // blocks have no version
  }
  bool quotes_versions() const noexcept override { return true; }
  std::string_view checksum_field() const noexcept override { return "x-ms-content-crc64"; }
  void append_checksum(const Request& request, const http::ResponseHead& head,
                       std::string& out) const override;

  std::shared_ptr<const ObjectDetails> details_of(const http::ResponseHead& head) const override {
    return object_details(head);
  }

  /// Fields of the settings of a write: those of its store, and over them `given`. Errors:
  /// kInvalidArgument, kUnsupported.
  Result<vendor::FieldList> fields_of_write(const ObjectSettings* given) const;

  AbortedUploads& aborted_uploads() noexcept { return aborted_uploads_; }
  /// Error unless the full key is one that Azure keeps as it is.
  Status check_key(std::string_view key) const;
  /// kNotFound unless parts can be added to this upload, or committed.
  Status check_upload(std::string_view upload_id) const;
  /// The blob's address with neither query nor SAS.
  std::string blob_url(std::string_view key) const;
  /// Appends the head of one delete inside a batch. Errors: those of the credentials.
  Status append_batch_delete(std::string_view key, std::chrono::sys_seconds now, std::string& out);

 private:
  Result<std::shared_ptr<const auth::Token>> token_at(std::chrono::sys_seconds now)
      HEADRACE_EXCLUDES(mutex_);
  void finish(HeadBuilder& head, const auth::Token* token, std::string_view unsigned_fields);

  AbortedUploads aborted_uploads_;
  Mutex mutex_;
  std::shared_ptr<const auth::Token> last_token_ HEADRACE_GUARDED_BY(mutex_);  // sent last
};

}  // namespace headrace::azure
