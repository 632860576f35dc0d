#pragma once
/// \file
/// RecordOpener: opens the protected records of one direction of a TLS 1.3 connection (RFC 8446,
/// sections 5.2, 5.3, 7.2, 7.3), straight from where they were received to where their content is
/// wanted. OpenSSL's SSL_read() copies each record in and out again. AES-GCM only; no I/O.
///
/// Threads: one at a time.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "headrace/status.h"

using EVP_CIPHER_CTX = struct evp_cipher_ctx_st;

namespace headrace {

constexpr std::size_t kTlsHeaderBytes = 5;
constexpr std::size_t kTlsTagBytes = 16;
/// Of content plus its type and padding, and of a whole record on the wire.
constexpr std::size_t kMaxTlsInnerBytes = (1 << 14) + 1;
constexpr std::size_t kMaxTlsRecordBytes = kTlsHeaderBytes + (1 << 14) + 256;

enum class TlsContent : std::uint8_t { kAlert = 21, kHandshake = 22, kData = 23 };

/// IANA numbers of the suites that it knows.
enum class TlsSuite : std::uint16_t { kAes128GcmSha256 = 0x1301, kAes256GcmSha384 = 0x1302 };

/// Length of the record at the start of `bytes`, header included; 0 when its header is not complete
/// yet. Errors: kCorrupt (not an application-data record, or too long or short for one).
Result<std::size_t> tls_record_bytes(std::span<const std::byte> bytes);

class RecordOpener {
 public:
  struct Opened {
    std::size_t content_bytes = 0;
    TlsContent type = TlsContent::kData;
  };

  /// `secret`: the sender's application traffic secret, 32 or 48 bytes by the suite's hash. Errors:
  /// kUnsupported (suite, or OpenSSL lacks it), kInvalidArgument (length).
  static Result<std::unique_ptr<RecordOpener>> create(TlsSuite suite,
                                                      std::span<const std::byte> secret);
  ~RecordOpener();
  RecordOpener(const RecordOpener&) = delete;
  RecordOpener& operator=(const RecordOpener&) = delete;

  /// Opens the next record. `record`: as tls_record_bytes() measured it; `out`: room for all of it
  /// but header, tag and type (record.size() - 22 bytes), which are unspecified after an error and
  /// past content_bytes. Errors: kCorrupt (tag, empty, unknown type). Allocates nothing.
  Result<Opened> open(std::span<const std::byte> record, std::span<std::byte> out);

  /// The sender has changed its keys (KeyUpdate).
  Status update_keys();

 private:
  RecordOpener() = default;
  Status derive_keys();
  Status expand(const char* label, std::span<std::byte> out) const;

  EVP_CIPHER_CTX* context_ = nullptr;
  const char* digest_ = nullptr;
  std::size_t key_bytes_ = 0;
  std::size_t secret_bytes_ = 0;
  std::array<std::byte, 48> secret_{};
  std::array<std::byte, 12> iv_{};
  std::uint64_t sequence_ = 0;
};

}  // namespace headrace
