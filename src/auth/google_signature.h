#pragma once
/// \file
/// Google's V4 signatures ("GOOG4"): Authorization fields by HMAC key and signed URLs by HMAC key
/// or by a service account's RSA key, and what else is signed with that RSA key. The canonical form
/// is that of auth/sigv4.h. Pure: time and keys are arguments. Checked against Google's vectors.
///
/// Place: store/gcs signs with it, auth/google_token for JWTs. Threads: any.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "auth/sigv4.h"
#include "base/mutex.h"
#include "headrace/status.h"

namespace headrace::auth {

/// An RSA private key. Immutable.
class RsaKey {
 public:
  /// `pem`: PKCS#8 or PKCS#1, unencrypted. Errors: kInvalidArgument (no such key in it; the message
  /// has nothing of the text).
  static Result<std::shared_ptr<const RsaKey>> create(std::string_view pem);
  ~RsaKey();
  RsaKey(const RsaKey&) = delete;
  RsaKey& operator=(const RsaKey&) = delete;

  /// RSASSA-PKCS1-v1_5 with SHA-256 over `text` (RS256): the signature's bytes. About 1 ms with
  /// 2048 bits. Errors: kInternal.
  Result<std::string> sign(std::string_view text) const;

 private:
  explicit RsaKey(void* key) noexcept : key_(key) {}
  void* const key_;  // EVP_PKEY
};

/// Who signs URLs, and how.
struct UrlSigner {
  std::string algorithm;  ///< "GOOG4-RSA-SHA256" or "GOOG4-HMAC-SHA256".
  std::string access_id;  ///< E-mail address of the service account, or HMAC access id.
  /// Signature bytes of `string_to_sign`; `date` is its day, "20190201".
  std::function<Result<std::string>(std::string_view string_to_sign, std::string_view date)> sign;
};
UrlSigner rsa_url_signer(std::string client_email, std::shared_ptr<const RsaKey> key);

/// HMAC keys of Cloud Storage (of a service account or a user).
struct GoogleHmacKey {
  std::string access_id;
  std::string secret;
};
UrlSigner hmac_url_signer(GoogleHmacKey key);

/// Signs requests with an HMAC key. The derived key of the day is kept.
class GoogleHmacSigner {
 public:
  explicit GoogleHmacSigner(GoogleHmacKey key) : key_(std::move(key)) {}
  /// Appends "GOOG4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=...". The request's
  /// fields must hold host and x-goog-date.
  void append_authorization(const CanonicalRequest& request, WallTime now, std::string& out)
      HEADRACE_EXCLUDES(mutex_);

 private:
  const GoogleHmacKey key_;
  Mutex mutex_;
  std::string date_ HEADRACE_GUARDED_BY(mutex_), derived_ HEADRACE_GUARDED_BY(mutex_);
};

/// The query of a signed URL: that of `request` and the X-Goog-* parameters, the signature last.
/// \pre 1 s <= lifetime <= 7 days (Google's limit).
Result<std::string> google_signed_query(const CanonicalRequest& request, const UrlSigner& signer,
                                        WallTime now, std::chrono::seconds lifetime);

}  // namespace headrace::auth
