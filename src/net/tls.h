#pragma once
/// \file
/// TLS by OpenSSL 3 as a state machine: bytes in, bytes out, no I/O. Client side only, TLS 1.2 and
/// 1.3, ALPN http/1.1, server certificates verified.
///
/// Handshake and sending are OpenSSL's. Received TLS 1.3 records with AES-GCM are opened by
/// RecordOpener, from the receive buffer straight to where the content is wanted; other suites go
/// through SSL_read(). See docs/design/0011-tls-endpoints.md.
///
/// Threads: TlsContext from any; TlsSession and TlsResumption from one at a time.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "net/tls_record.h"

using SSL = struct ssl_st;
using SSL_CTX = struct ssl_ctx_st;
using SSL_SESSION = struct ssl_session_st;
using BIO_METHOD = struct bio_method_st;

namespace headrace {

struct TlsCallbacks;

struct TlsOptions {
  /// Check the server's certificate and its name. false is for tests against throw-away servers.
  bool verify = true;
  /// PEM files or directories (OpenSSL's hashed form) of certificate authorities. Empty: the
  /// system's.
  std::vector<std::string> authorities;
};

/// What all TLS connections of a program part share: authorities, versions, suites.
class TlsContext {
 public:
  /// Reads the authorities: some milliseconds. Errors: kInvalidArgument (they cannot be read),
  /// kInternal (OpenSSL).
  static Result<std::shared_ptr<TlsContext>> create(const TlsOptions& options);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsSession;
  friend struct TlsCallbacks;
  TlsContext() = default;
  SSL_CTX* context_ = nullptr;
  BIO_METHOD* method_ = nullptr;
};

/// The newest session ticket of one server: the next handshake with it is shorter.
class TlsResumption {
 public:
  TlsResumption() = default;
  ~TlsResumption() { clear(); }
  TlsResumption(const TlsResumption&) = delete;
  TlsResumption& operator=(const TlsResumption&) = delete;
  bool has_ticket() const noexcept { return session_ != nullptr; }
  void clear() noexcept;

 private:
  friend class TlsSession;
  friend struct TlsCallbacks;
  SSL_SESSION* session_ = nullptr;
};

class TlsSession {
 public:
  struct Decrypted {
    std::size_t consumed_bytes = 0;  ///< Of the input. The rest starts with an incomplete record.
    std::size_t produced_bytes = 0;
    bool is_end = false;  ///< The server has said that nothing more comes (close_notify).
  };

  /// `host`: name or address without brackets; sent as SNI and compared with the certificate.
  /// `resumption` (may be nullptr) outlives the session. Errors: kInvalidArgument (host),
  /// kInternal.
  static Result<std::unique_ptr<TlsSession>> create(std::shared_ptr<TlsContext> context,
                                                    const std::string& host,
                                                    TlsResumption* resumption);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Goes on with the handshake (first without input) and returns how much of `input` it took; all
  /// of it unless is_established(). After an error output() may hold an alert for the server.
  /// Errors: kDenied (certificate; the message says what is wrong and what to do), kUnsupported (no
  /// TLS, no common version or suite), kUnavailable (others).
  Result<std::size_t> handshake(std::span<const std::byte> input);
  bool is_established() const noexcept { return is_established_; }
  bool is_resumed() const noexcept;
  /// "TLSv1.3 TLS_AES_128_GCM_SHA256".
  std::string description() const;

  // After the handshake:

  /// Opens as many records as fit. Stops at the end of `out`, of `input`, or of the stream; takes
  /// what was left over by a smaller `out` first. Errors: kUnavailable (bad or unexpected record,
  /// alert of the server); the session is of no use then. Allocates nothing.
  Result<Decrypted> decrypt(std::span<const std::byte> input, std::span<std::byte> out);
  /// Content that is open but did not fit.
  std::size_t surplus_bytes() const noexcept { return spill_end_ - spill_begin_; }
  /// Seals all of `plain` to the end of output().
  Status encrypt(std::span<const std::byte> plain);
  /// Says that nothing more comes.
  void close();

  /// What has to be sent. The owner takes it by swapping or clearing.
  std::vector<std::byte>& output() noexcept { return output_; }

 private:
  friend struct TlsCallbacks;
  TlsSession() = default;

  Status handshake_error();
  Status certificate_error(long verdict) const;
  void take_over_receiving();
  Result<Decrypted> decrypt_by_opener(std::span<const std::byte> input, std::span<std::byte> out);
  Result<Decrypted> decrypt_by_openssl(std::span<const std::byte> input, std::span<std::byte> out);
  Status open_record(std::span<const std::byte> record, std::span<std::byte> out,
                     Decrypted& result);
  Status on_handshake_record(std::span<const std::byte> record, std::span<const std::byte> content);
  Status on_message(std::span<const std::byte> message);
  Status on_alert(std::span<const std::byte> content, Decrypted& result);
  Status answer_key_update();
  void take_spill(std::span<std::byte> out, Decrypted& result);

  std::shared_ptr<TlsContext> context_;
  std::string host_;
  TlsResumption* resumption_ = nullptr;
  SSL* ssl_ = nullptr;
  bool is_established_ = false;

  std::span<const std::byte> input_;  // of the call in progress, for OpenSSL's reads
  std::vector<std::byte> output_;

  std::vector<std::byte> server_secret_;  // until receiving has been taken over
  std::unique_ptr<RecordOpener> opener_;  // nullptr: OpenSSL opens
  bool is_in_step_ = true;           // OpenSSL has seen all records: it may see the next one, too
  std::vector<std::byte> messages_;  // an incomplete post-handshake message
  std::unique_ptr<std::byte[]> spill_;
  std::size_t spill_begin_ = 0;
  std::size_t spill_end_ = 0;
  bool is_ended_ = false;
};

}  // namespace headrace
