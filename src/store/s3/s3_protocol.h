#pragma once
/// \file
/// S3Protocol: S3's requests and answers for the transfer engine. No I/O. Header fields go out in
/// lower case and sorted, so that what is signed and what is sent are the same bytes.
///
/// Threads: any; immutable but for the signer's own pool.
#include <memory>
#include <string>

#include "auth/sigv4.h"
#include "store/http_protocol.h"
#include "store/s3/s3_config.h"

namespace headrace::s3 {

class S3Protocol final : public HttpProtocol {
 public:
  /// Errors: kInternal (OpenSSL without SHA-256).
  static Result<std::shared_ptr<S3Protocol>> create(S3Config config);

  const HttpEndpoint& endpoint() const noexcept override { return config_.endpoint; }

  /// Payloads: over plain HTTP a PUT's body is hashed and the hash is signed, since nothing else
  /// protects it on the way (0.5 ms per MiB); over TLS it goes unsigned with its CRC32C. Errors
  /// also: kInvalidArgument when the key is empty, longer than S3's 1024 bytes, or has a NUL.
  Status append_head(const Request& request, const HeadContext& context, std::string& out) override;
  /// HttpCall::path is the whole key, prefix included.
  Status append_head(const HttpCall& call, const HeadContext& context, std::string& out) override;

  Status error_from(std::string_view what, const http::ResponseHead& head,
                    std::string_view body) override;
  Status check_answer(const HttpCall& call, const HttpAnswer& answer) override;
  std::string describe(const Request& request) const override;

  const S3Config& config() const noexcept { return config_; }
  /// Key in the bucket of a key relative to the root.
  std::string full_key(std::string_view key) const { return config_.prefix + std::string(key); }
  /// Error unless the full key is one that S3 takes.
  Status check_key(std::string_view key) const;

 private:
  S3Protocol(S3Config config, std::unique_ptr<auth::SigV4Signer> signer);

  const S3Config config_;
  const std::unique_ptr<auth::SigV4Signer> signer_;
};

}  // namespace headrace::s3
