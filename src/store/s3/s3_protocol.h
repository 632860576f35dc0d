#pragma once
/// \file
/// S3Protocol: S3's requests and answers for the transfer engine. No I/O. Header fields go out in
/// lower case and sorted, so that what is signed and what is sent are the same bytes.
///
/// Threads: any; what it learns from answers (region, clock) is kept in atomics and behind a lock.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "auth/sigv4.h"
#include "base/mutex.h"
#include "store/s3/head_builder.h"
#include "store/s3/s3_config.h"
#include "store/s3/s3_errors.h"
#include "store/s3/s3_settings.h"
#include "store/s3/server_clock.h"
#include "store/vendor/configured_protocol.h"

namespace headrace::s3 {

class S3Protocol final : public vendor::ConfiguredProtocol<S3Config> {
 public:
  /// `sessions`: of a directory bucket; signs everything but copies. `clock` is shared with it.
  /// Errors: kInternal (OpenSSL without SHA-256).
  static Result<std::shared_ptr<S3Protocol>> create(
      S3Config config, std::shared_ptr<auth::CredentialProvider> sessions = nullptr,
      std::shared_ptr<ServerClock> clock = nullptr);

  /// Payloads: what is written carries its checksum (StoreOptions::upload_checksum). Over plain
  /// HTTP to another machine the body is hashed as well and the hash is signed, since nothing else
  /// protects it on the way (0.5 ms per MiB); over TLS and to this machine it goes unsigned. Errors
  /// also: kInvalidArgument when the key is empty, longer than S3's 1024 bytes, or has a NUL.
  Status append_head(const Request& request, const HeadContext& context, std::string& out) override;
  /// HttpCall::path is the whole key, prefix included.
  Status append_head(const HttpCall& call, const HeadContext& context, std::string& out) override;

  /// Learns from answers that say so: expired credentials (their provider is told), a clock that is
  /// off, another region; then the code is kUnavailable, once per lesson.
  Status error_from(std::string_view what, const http::ResponseHead& head,
                    std::string_view body) override;
  Status check_answer(const HttpCall& call, const HttpAnswer& answer) override;
  Checksum checksum_of(const Request& request, const http::ResponseHead& head) const override;
  bool takes_heads() const noexcept override { return true; }
  Checksum object_checksum_of(const Request& request,
                              const http::ResponseHead& head) const override;
  std::shared_ptr<const ObjectDetails> details_of(const http::ResponseHead& head) const override {
    return object_details(head);
  }
  /// Only when the answer repeats the checksum: a store that does not know it would refuse it in
  /// CompleteMultipartUpload.
  bool quotes_versions() const noexcept override { return true; }
  std::string_view checksum_field() const noexcept override;
  void append_checksum(const Request& request, const http::ResponseHead& head,
                       std::string& out) const override;
  /// AIStore's gateways answer 307; S3 does while a bucket is new. The new place gets signature,
  /// session token and data as the old one did: a custom endpoint is trusted to name only places
  /// that may have them; Amazon's may only name Amazon's (else kDenied).
  bool follows_redirects() const noexcept override { return true; }
  bool names_what_it_wrote(const Request&) const noexcept override { return true; }

  /// A URL for GET or PUT of one object. Errors: as append_head(); kUnsupported (anonymous; a
  /// directory bucket, whose sessions are shorter than any useful URL), kInvalidArgument.
  Result<std::string> presign(const PresignRequest& request, std::chrono::sys_seconds wall_now);

  /// Fields of the settings of a write: those of its store, and over them `given`. Errors:
  /// kInvalidArgument.
  Result<vendor::FieldList> fields_of_write(const ObjectSettings* given) const;

  /// Error unless the full key is one that S3 takes.
  Status check_key(std::string_view key) const;

 private:
  /// Who signs, and with what.
  struct Signature {
    auth::SigV4Signer* signer = nullptr;  // nullptr: anonymous
    std::shared_ptr<const auth::Credentials> credentials;
    std::chrono::sys_seconds now;
    bool is_session = false;
  };

  S3Protocol(S3Config config, std::shared_ptr<auth::CredentialProvider> sessions,
             std::shared_ptr<ServerClock> clock, std::unique_ptr<auth::SigV4Signer> signer);

  Result<Signature> signature_at(std::chrono::sys_seconds wall_now, bool is_session);
  void note_in_use(const std::shared_ptr<const auth::Credentials>& credentials,
                   std::chrono::sys_seconds now) HEADRACE_EXCLUDES(mutex_);
  void append_auth_fields(const Signature& signature, std::string_view payload_hash,
                          HeadBuilder& head) const;
  Status check_redirect(const HttpRedirect* redirect, bool is_read) const;
  Status append_request_line(const Request& request, const HttpRedirect* redirect,
                             HeadBuilder& head) const;
  /// What error_from() can learn from.
  struct Lesson {
    Trouble trouble = Trouble::kNone;
    bool is_guess = false;  ///< The answer does not say so.
  };
  Lesson lesson_of(const http::ResponseHead& head, std::string_view body) HEADRACE_EXCLUDES(mutex_);
  bool learn_credentials_expired(bool is_guess) HEADRACE_EXCLUDES(mutex_);
  bool learn_region(const std::string& region) HEADRACE_EXCLUDES(mutex_);
  bool learn(Lesson lesson, const http::ResponseHead& head, std::string_view body);

  const std::shared_ptr<auth::CredentialProvider> sessions_;
  const std::shared_ptr<ServerClock> clock_;

  Mutex mutex_;
  std::vector<std::unique_ptr<auth::SigV4Signer>> signers_ HEADRACE_GUARDED_BY(mutex_);
  std::atomic<auth::SigV4Signer*> signer_;  // the last of signers_
  // The provider's credentials as requests were last signed with them, for telling which ones an
  // answer refuses. The pointer repeats `in_use_` for a look without the lock.
  std::shared_ptr<const auth::Credentials> in_use_ HEADRACE_GUARDED_BY(mutex_);
  bool has_replaced_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::chrono::sys_seconds in_use_since_ HEADRACE_GUARDED_BY(mutex_){};
  std::atomic<std::int64_t> last_used_s_{0};
  std::atomic<const auth::Credentials*> in_use_pointer_{nullptr};
};

}  // namespace headrace::s3
