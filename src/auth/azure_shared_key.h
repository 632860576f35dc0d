#pragma once
/// \file
/// Azure Storage's Shared Key scheme for the Blob service: the Authorization field, and service SAS
/// queries (signed URLs). Pure: time, account and key are arguments. Checked against Microsoft's
/// documented examples and the azure-storage-blob package.
///
/// References: "Authorize with Shared Key" and "Create a service SAS" of the Azure Storage REST
/// API reference; versions 2015-02-21 and later (Shared Key), 2020-12-06 and later (SAS).
/// Place: store/azure signs with it.
/// Threads: SharedKeySigner from any thread.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "auth/renewing.h"
#include "base/mutex.h"
#include "headrace/status.h"
#include "http/fields.h"

namespace headrace::auth {

namespace detail {
using Sha256Digest = std::array<unsigned char, 32>;
}

/// A request as Shared Key sees it. All of it is what goes over the wire.
struct SharedKeyRequest {
  std::string_view method;
  std::string_view path;  ///< Escaped, as sent: "/container/a%20b".
  /// Names in lower case and sorted, not escaped.
  std::span<const http::Field> query;
  /// All header fields that the scheme covers (x-ms-*, content-*, if-*, range, date); names in
  /// lower case, sorted, each once, values trimmed. Others may be among them.
  std::span<const http::Field> fields;
};

/// Signs for one account. Keeps hash contexts for reuse: no allocation at steady state.
class SharedKeySigner {
 public:
  /// `key_base64` as the portal shows it. Errors: kInvalidArgument (account or key malformed; the
  /// message has no part of the key), kInternal (OpenSSL without SHA-256).
  static Result<std::unique_ptr<SharedKeySigner>> create(std::string account,
                                                         std::string_view key_base64);
  ~SharedKeySigner();
  SharedKeySigner(const SharedKeySigner&) = delete;
  SharedKeySigner& operator=(const SharedKeySigner&) = delete;

  /// Appends the value of the Authorization field: "SharedKey account:signature".
  void append_authorization(const SharedKeyRequest& request, std::string& out);
  /// Appends base64 of HMAC-SHA256 of `text` under the account's key.
  void append_signature(std::string_view text, std::string& out);

  const std::string& account() const noexcept { return account_; }

 private:
  struct Scratch;
  explicit SharedKeySigner(std::string account);
  bool set_key(std::string_view key);
  detail::Sha256Digest hmac(const Scratch& scratch, std::string_view text) const;
  std::unique_ptr<Scratch> take() HEADRACE_EXCLUDES(mutex_);
  void give_back(std::unique_ptr<Scratch> scratch) HEADRACE_EXCLUDES(mutex_);

  const std::string account_;
  std::array<char, 64> inner_pad_{}, outer_pad_{};  // the key as HMAC uses it; wiped at the end
  Mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_ HEADRACE_GUARDED_BY(mutex_);
};

/// Appends what Shared Key signs, for tests and for messages never.
void append_string_to_sign(const SharedKeyRequest& request, std::string_view account,
                           std::string& out);

/// A service SAS for one blob.
struct BlobSas {
  std::string container;
  std::string blob;         ///< Not escaped.
  std::string permissions;  ///< In Azure's order, of "racwdxyltmeop": "r" to read, "cw" to write.
  WallTime expires{};
  std::string protocol;         ///< "https", "https,http", or empty for the default.
  std::string version_id = {};  ///< Empty: the blob itself.
};

/// The query of a signed URL, without '?': "se=...&sp=...&sv=...&sr=b&sig=...". That of a version
/// has "sr=bv" and the parameter versionid, which the signature covers.
std::string blob_sas_query(const BlobSas& sas, SharedKeySigner& signer);

}  // namespace headrace::auth
