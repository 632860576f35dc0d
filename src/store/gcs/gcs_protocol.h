#pragma once
/// \file
/// GcsProtocol: requests and answers of Google's XML API for the transfer engine. No I/O. The
/// version of an object is its generation in decimal digits, without quotes. Header fields go out
/// in lower case and sorted, so that what an HMAC key signs and what is sent are the same bytes.
///
/// Threads: any; immutable but for the signer's key of the day and the last token.
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "auth/google_signature.h"
#include "base/mutex.h"
#include "store/gcs/gcs_config.h"
#include "store/gcs/gcs_settings.h"
#include "store/vendor/configured_protocol.h"

namespace headrace::gcs {

class GcsProtocol final : public vendor::ConfiguredProtocol<GcsConfig> {
 public:
  explicit GcsProtocol(GcsConfig config);

  /// "accept-encoding: gzip" keeps Google from unpacking objects that were stored compressed, which
  /// would make ranges and sums meaningless: bytes come as they are stored. Errors also: kChanged,
  /// when Request::etag is no generation.
  Status append_head(const Request& request, const HeadContext& context, std::string& out) override;
  /// HttpCall::path is the whole key, prefix included; empty: the bucket.
  Status append_head(const HttpCall& call, const HeadContext& context, std::string& out) override;

  Status error_from(std::string_view what, const http::ResponseHead& head,
                    std::string_view body) override;
  Status check_answer(const HttpCall& call, const HttpAnswer& answer) override;
  /// Only of whole objects: Google has no sums of ranges.
  Checksum checksum_of(const Request& request, const http::ResponseHead& head) const override;
  Checksum object_checksum_of(const Request& request,
                              const http::ResponseHead& head) const override;
  std::shared_ptr<const ObjectDetails> details_of(const http::ResponseHead& head) const override {
    return object_details(head);
  }
  /// The generation; of a part its ETag.
  std::string_view version_of(const Request& request,
                              const http::ResponseHead& head) const override;
  /// Of a part: the CRC32C that was sent, as in x-goog-hash.
  void append_checksum(const Request& request, const http::ResponseHead& head,
                       std::string& out) const override;
  EndpointRules rules() const override;
  bool names_what_it_wrote(const Request&) const noexcept override { return true; }

  /// Fields of the settings of a write: those of its store, and over them `given`. Errors:
  /// kInvalidArgument, kUnsupported.
  Result<vendor::FieldList> fields_of_write(const ObjectSettings* given) const;

  /// A signed URL, valid from `now` on. Errors: kUnsupported (credentials that cannot sign).
  Result<std::string> presign(const PresignRequest& request, auth::WallTime now) const;

 private:
  struct Access {
    std::shared_ptr<const auth::Token> token;  // with tokens only
  };
  Result<Access> access(auth::WallTime now);
  Status check_request(const Request& request) const;
  void append_request_line(const Request& request, std::string& out) const;
  void append_target(std::string_view key, std::string& out) const;
  void append_tail(const Access& access, const HeadContext& context, std::string_view method,
                   std::size_t start, std::optional<std::uint64_t> body_bytes, std::string& out);

  const std::unique_ptr<auth::GoogleHmacSigner> signer_;  // with an HMAC key
  // The token that was sent last, for invalidate(); the raw pointer spares the lock while it stays.
  std::atomic<const auth::Token*> last_raw_{nullptr};
  Mutex mutex_;
  std::shared_ptr<const auth::Token> last_token_ HEADRACE_GUARDED_BY(mutex_);
};

/// What both of Google's APIs have in common: kInvalidArgument when a value would end its header
/// line early.
Status check_field_value(std::string_view name, std::string_view value);
/// Errors: kInvalidArgument (not empty, and no generation).
Status check_version_id(std::string_view version_id);
/// True for a generation that an object can have.
bool is_generation(std::string_view text) noexcept;

}  // namespace headrace::gcs
