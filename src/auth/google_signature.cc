// GOOG4, which is SigV4 with other names and one fixed scope: "auto/storage" stands for every
// bucket, so the derived key depends on the day alone and is kept for it. Specification: Google
// Cloud Storage, "Signatures" and "V4 signing process".
//
// RSA signatures (1 ms) are made for signed URLs and tokens only, never for a request.
#include "auth/google_signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <vector>

#include "auth/hashing.h"
#include "base/strings.h"
#include "http/date.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

// Google: "location auto, service storage" for every bucket.
constexpr std::string_view kScopeRest = "/auto/storage/goog4_request";

std::string hmac(std::string_view key, std::string_view text) {
  std::array<unsigned char, 32> digest{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size);
  return std::string(reinterpret_cast<const char*>(digest.data()), size);
}

std::string derived_key(std::string_view secret, std::string_view date) {
  std::string key = hmac("GOOG4" + std::string(secret), date);
  for (const char* step : {"auto", "storage", "goog4_request"}) key = hmac(key, step);
  return key;
}

std::string hex(std::string_view bytes) {
  return to_hex(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

std::string signed_names(std::span<const http::Field> fields) {
  std::string names;
  for (const http::Field& field : fields) {
    if (!names.empty()) names.push_back(';');
    names.append(field.name);
  }
  return names;
}

std::string string_to_sign(std::string_view algorithm, const CanonicalRequest& request,
                           std::string_view query, std::string_view stamp) {
  std::string canonical;
  canonical.append(request.method).append("\n").append(request.path).append("\n");
  canonical.append(query).append("\n");
  for (const http::Field& field : request.fields) {
    canonical.append(field.name).append(":");
    detail::append_squeezed(field.value, canonical);
    canonical.append("\n");
  }
  canonical.append("\n").append(signed_names(request.fields)).append("\n");
  canonical.append(request.payload_hash);
  std::string text(algorithm);
  text.append("\n").append(stamp).append("\n").append(stamp.substr(0, 8)).append(kScopeRest);
  return text.append("\n").append(sha256_hex(canonical));
}

std::string stamp_of(WallTime now) {
  std::string stamp(16, '\0');
  http::write_amz_date(now, stamp.data());
  return stamp;
}

}  // namespace

Result<std::shared_ptr<const RsaKey>> RsaKey::create(std::string_view pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  // The callback answers "no password": OpenSSL's own would ask on the terminal.
  EVP_PKEY* key = bio == nullptr
                      ? nullptr
                      : PEM_read_bio_PrivateKey(
                            bio.get(), nullptr, [](char*, int, int, void*) { return -1; }, nullptr);
  if (key == nullptr || EVP_PKEY_get_base_id(key) != EVP_PKEY_RSA) {
    EVP_PKEY_free(key);
    return Status(Code::kInvalidArgument, "the private key is not an unencrypted RSA key in PEM");
  }
  return std::shared_ptr<const RsaKey>(new RsaKey(key));
}

RsaKey::~RsaKey() { EVP_PKEY_free(static_cast<EVP_PKEY*>(key_)); }

Result<std::string> RsaKey::sign(std::string_view text) const {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t size = 0;
  std::string out;
  const bool is_ready = context != nullptr &&
                        EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr,
                                           static_cast<EVP_PKEY*>(key_)) == 1 &&
                        EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) == 1;
  if (is_ready) out.resize(size);
  if (!is_ready || EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()),
                                  &size, bytes, text.size()) != 1) {
    return Status(Code::kInternal, "OpenSSL could not sign with the RSA key");
  }
  out.resize(size);
  return out;
}

UrlSigner rsa_url_signer(std::string client_email, std::shared_ptr<const RsaKey> key) {
  return {
      "GOOG4-RSA-SHA256", std::move(client_email),
      [key = std::move(key)](std::string_view text, std::string_view) { return key->sign(text); }};
}

UrlSigner hmac_url_signer(GoogleHmacKey key) {
  std::string access_id = key.access_id;
  return {"GOOG4-HMAC-SHA256", std::move(access_id),
          [key = std::move(key)](std::string_view text, std::string_view date) {
            return Result<std::string>(hmac(derived_key(key.secret, date), text));
          }};
}

void GoogleHmacSigner::append_authorization(const CanonicalRequest& request, WallTime now,
                                            std::string& out) {
  constexpr std::string_view kAlgorithm = "GOOG4-HMAC-SHA256";
  const std::string stamp = stamp_of(now);
  const std::string text = string_to_sign(kAlgorithm, request, request.query, stamp);
  std::string key;
  {
    const MutexLock lock(mutex_);
    if (date_ != stamp.substr(0, 8)) {
      date_ = stamp.substr(0, 8);
      derived_ = derived_key(key_.secret, date_);
    }
    key = derived_;
  }
  const std::string names = signed_names(request.fields);
  out.append(kAlgorithm).append(" Credential=").append(key_.access_id).append("/");
  out.append(stamp, 0, 8).append(kScopeRest).append(", SignedHeaders=").append(names);
  out.append(", Signature=").append(hex(hmac(key, text)));
}

Result<std::string> google_signed_query(const CanonicalRequest& request, const UrlSigner& signer,
                                        WallTime now, std::chrono::seconds lifetime) {
  const std::string stamp = stamp_of(now);
  const std::string scope = stamp.substr(0, 8) + std::string(kScopeRest);
  std::string query(request.query);
  if (!query.empty()) query.push_back('&');
  query += "X-Goog-Algorithm=" + signer.algorithm + "&X-Goog-Credential=";
  http::append_encoded(signer.access_id + "/" + scope, http::Slash::kEscape, query);
  query += "&X-Goog-Date=" + stamp + "&X-Goog-Expires=" + std::to_string(lifetime.count());
  query += "&X-Goog-SignedHeaders=";
  http::append_encoded(signed_names(request.fields), http::Slash::kEscape, query);
  HEADRACE_TRY_ASSIGN(const std::string sorted, canonical_query(query));
  const std::string text = string_to_sign(signer.algorithm, request, sorted, stamp);
  HEADRACE_TRY_ASSIGN(const std::string signature,
                      signer.sign(text, std::string_view(stamp).substr(0, 8)));
  return sorted + "&X-Goog-Signature=" + hex(signature);
}

}  // namespace headrace::auth
