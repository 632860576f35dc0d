#pragma once
/// \file
/// AWS Signature Version 4: signing of headers, presigned queries, and verification for servers.
/// Pure: time, credentials, region and service are arguments. Checked against the vectors that AWS
/// publishes and against botocore.
///
/// Place: store/s3 signs with it, sim verifies with it. Hashes by OpenSSL.
/// Threads: SigV4Signer from any thread; the free functions hold no state.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "auth/renewing.h"
#include "headrace/status.h"
#include "http/fields.h"
#include "http/request.h"

namespace headrace::auth {

namespace detail {
class ScratchPool;
}

/// One key pair; with a session token when it is temporary.
struct Credentials {
  std::string access_key_id;
  std::string secret_access_key;
  std::string session_token;        ///< Empty: long-term credentials.
  std::optional<WallTime> expires;  ///< When known.

  bool operator==(const Credentials&) const = default;
};

/// SHA-256 of no bytes, in hex.
constexpr std::string_view kEmptyPayloadHash =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// Stands for a payload that the signature does not cover.
constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

/// A request in canonical form. All of it is what goes over the wire, byte for byte.
struct CanonicalRequest {
  std::string_view method;
  std::string_view
      path;  ///< Escaped: canonical_path(). S3: "/bucket/a%20b", once escaped, not normalised.
  std::string_view query;  ///< Canonical: canonical_query(). Without '?'.
  /// Names in lower case, sorted, each once, values trimmed. Must hold host and x-amz-date.
  std::span<const http::Field> fields;
  std::string_view payload_hash;  ///< 64 hex digits or kUnsignedPayload.
};

/// Signs for one region and service. Keeps derived keys and hash contexts for reuse: no allocation
/// at steady state, so long as credentials and date stay the same.
class SigV4Signer {
 public:
  /// Errors: kInternal when OpenSSL has no SHA-256.
  static Result<std::unique_ptr<SigV4Signer>> create(std::string region, std::string service);
  ~SigV4Signer();
  SigV4Signer(const SigV4Signer&) = delete;
  SigV4Signer& operator=(const SigV4Signer&) = delete;

  /// Appends the value of the Authorization field: "AWS4-HMAC-SHA256 Credential=...,
  /// SignedHeaders=..., Signature=...".
  void append_authorization(const CanonicalRequest& request, const Credentials& credentials,
                            WallTime now, std::string& out);

  /// Returns the query of a presigned URL: that of `request` plus the X-Amz-* parameters, signature
  /// last. The request's fields need only host. The service "s3express" has its session token in a
  /// parameter of its own name. \pre 1 s <= lifetime <= 7 days (S3's limit).
  std::string presigned_query(const CanonicalRequest& request, const Credentials& credentials,
                              WallTime now, std::chrono::seconds lifetime);

  /// The 64 hex digits for a request whose scope is (date of `now`, region, service).
  std::string signature(const CanonicalRequest& request, const Credentials& credentials,
                        WallTime now);

  const std::string& region() const noexcept { return region_; }
  const std::string& service() const noexcept { return service_; }

 private:
  SigV4Signer(std::string region, std::string service, std::unique_ptr<detail::ScratchPool> pool);

  const std::string region_;
  const std::string service_;
  const std::unique_ptr<detail::ScratchPool> pool_;
};

/// SHA-256 of `bytes` as 64 hex digits.
std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view bytes);

enum class PathRules : std::uint8_t {
  kS3,       ///< As sent: nothing is normalised, escaped once.
  kGeneric,  ///< Dot segments and doubled slashes removed, then escaped a second time.
};

/// Canonical path of an escaped path as sent.
std::string canonical_path(std::string_view escaped_path, PathRules rules);

/// Canonical form of an escaped query as sent: pieces decoded, escaped anew, sorted; "name" becomes
/// "name=". '+' stays a plus sign, as in botocore and the AWS suite. `without` is a name to leave
/// out ("X-Amz-Signature"). Errors: kInvalidArgument, bad escape.
Result<std::string> canonical_query(std::string_view query, std::string_view without = {});

/// Canonical form of the fields named in `signed_names` ("host;x-amz-date"), of those in `fields`
/// (raw header lines): values trimmed, inner runs of spaces squeezed, repeated fields joined with
/// ','. Views point into `storage`.
std::vector<http::Field> canonical_fields(std::string_view fields, std::string_view signed_names,
                                          std::string& storage);

// --- verification, for servers ---

/// What a server accepts.
struct VerifyOptions {
  std::vector<Credentials> accepted;
  std::string region;  ///< Empty: any.
  std::string service = "s3";
  std::chrono::seconds max_skew{900};  ///< S3's 15 minutes.
};

/// Outcome of a check.
struct Verdict {
  /// Empty: the signature is good. Else S3's error code: AccessDenied (unsigned, or presigned and
  /// expired), InvalidAccessKeyId, SignatureDoesNotMatch, RequestTimeTooSkewed,
  /// AuthorizationHeaderMalformed, InvalidToken.
  std::string_view error_code;
  std::string message;
  bool is_anonymous = false;  ///< Neither Authorization field nor presigned query: AccessDenied,
                              ///< unless the server allows it.
  /// What the signature says of the body: 64 hex digits that the server must compare with the body
  /// it got, kUnsignedPayload, or a "STREAMING-..." marker.
  std::string payload_hash;
  bool ok() const noexcept { return error_code.empty(); }
};

/// Checks the signatures of requests by S3's rules. Thread-safe.
class SigV4Verifier {
 public:
  /// Errors: kInternal when OpenSSL has no SHA-256.
  static Result<std::unique_ptr<SigV4Verifier>> create(VerifyOptions options);
  ~SigV4Verifier();
  SigV4Verifier(const SigV4Verifier&) = delete;
  SigV4Verifier& operator=(const SigV4Verifier&) = delete;

  /// Checks the Authorization field or the presigned query of a request as it was received.
  /// Compares in constant time.
  Verdict verify(const http::RequestHead& request, WallTime now);

 private:
  SigV4Verifier(VerifyOptions options, std::unique_ptr<detail::ScratchPool> pool);

  const VerifyOptions options_;
  const std::unique_ptr<detail::ScratchPool> pool_;
};

}  // namespace headrace::auth
