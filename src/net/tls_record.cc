// The keys come from OpenSSL's handshake; from then on records are opened here, so that their
// content lands in the slab instead of in OpenSSL's buffer first.
//
// - The nonce is the number of the record (RFC 8446, section 5.3): records are opened once each,
//   in order. A record with a bad tag leaves the number where it was; the connection is over then.
// - Key, iv and number change together, in derive_keys(), and nowhere else.
// - Content is written before its tag is checked. Nobody may look at it until open() has said yes.
// - Secrets are wiped wherever they were: the object, and the stack.
#include "net/tls_record.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace headrace {
namespace {

const unsigned char* octets(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* octets(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

Status corrupt(const char* what) { return Status(Code::kCorrupt, std::string("TLS: ") + what); }

}  // namespace

Result<std::size_t> tls_record_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kTlsHeaderBytes) return std::size_t{0};
  if (bytes[0] != static_cast<std::byte>(TlsContent::kData)) return corrupt("unprotected record");
  const std::size_t length_bytes =
      std::to_integer<std::size_t>(bytes[3]) << 8 | std::to_integer<std::size_t>(bytes[4]);
  if (length_bytes + kTlsHeaderBytes > kMaxTlsRecordBytes) return corrupt("record too long");
  if (length_bytes < kTlsTagBytes + 1) return corrupt("record too short");
  return kTlsHeaderBytes + length_bytes;
}

Result<std::unique_ptr<RecordOpener>> RecordOpener::create(TlsSuite suite,
                                                           std::span<const std::byte> secret) {
  std::unique_ptr<RecordOpener> opener(new RecordOpener());
  const EVP_CIPHER* cipher = nullptr;
  if (suite == TlsSuite::kAes128GcmSha256) {
    cipher = EVP_aes_128_gcm();
    opener->digest_ = "SHA256";
    opener->key_bytes_ = 16;
    opener->secret_bytes_ = 32;
  } else if (suite == TlsSuite::kAes256GcmSha384) {
    cipher = EVP_aes_256_gcm();
    opener->digest_ = "SHA384";
    opener->key_bytes_ = 32;
    opener->secret_bytes_ = 48;
  } else {
    return Status(Code::kUnsupported, "TLS: no opener for this cipher suite");
  }
  if (secret.size() != opener->secret_bytes_)
    return Status(Code::kInvalidArgument, "TLS: traffic secret of a wrong length");
  std::copy(secret.begin(), secret.end(), opener->secret_.begin());
  opener->context_ = EVP_CIPHER_CTX_new();
  if (opener->context_ == nullptr ||
      EVP_DecryptInit_ex(opener->context_, cipher, nullptr, nullptr, nullptr) != 1)
    return Status(Code::kUnsupported, "TLS: OpenSSL lacks AES-GCM");
  HEADRACE_TRY(opener->derive_keys());
  return opener;
}

RecordOpener::~RecordOpener() {
  EVP_CIPHER_CTX_free(context_);
  OPENSSL_cleanse(secret_.data(), secret_.size());
  OPENSSL_cleanse(iv_.data(), iv_.size());
}

// HKDF-Expand-Label with an empty context; one block of HMAC is enough for all that is asked here.
Status RecordOpener::expand(const char* label, std::span<std::byte> out) const {
  const std::string_view text(label);
  std::array<unsigned char, 32> info{};
  std::size_t size_bytes = 0;
  info[size_bytes++] = 0;
  info[size_bytes++] = static_cast<unsigned char>(out.size());
  info[size_bytes++] = static_cast<unsigned char>(6 + text.size());
  std::memcpy(info.data() + size_bytes, "tls13 ", 6);
  size_bytes += 6;
  std::memcpy(info.data() + size_bytes, text.data(), text.size());
  size_bytes += text.size();
  info[size_bytes++] = 0;  // no context
  info[size_bytes++] = 1;  // the first block
  std::array<unsigned char, EVP_MAX_MD_SIZE> block{};
  unsigned int block_bytes = 0;
  if (HMAC(EVP_get_digestbyname(digest_), secret_.data(), static_cast<int>(secret_bytes_),
           info.data(), size_bytes, block.data(), &block_bytes) == nullptr ||
      block_bytes < out.size())
    return Status(Code::kInternal, "TLS: cannot derive keys");
  std::memcpy(out.data(), block.data(), out.size());
  OPENSSL_cleanse(block.data(), block.size());
  return {};
}

Status RecordOpener::derive_keys() {
  std::array<std::byte, 32> key{};
  HEADRACE_TRY(expand("key", std::span(key).first(key_bytes_)));
  HEADRACE_TRY(expand("iv", iv_));
  sequence_ = 0;
  const int done =
      EVP_DecryptInit_ex(context_, nullptr, nullptr, octets(key.data()), octets(iv_.data()));
  OPENSSL_cleanse(key.data(), key.size());
  return done == 1 ? Status() : Status(Code::kInternal, "TLS: cannot set keys");
}

Status RecordOpener::update_keys() {
  std::array<std::byte, 48> next{};
  HEADRACE_TRY(expand("traffic upd", std::span(next).first(secret_bytes_)));
  secret_ = next;
  OPENSSL_cleanse(next.data(), next.size());
  return derive_keys();
}

Result<RecordOpener::Opened> RecordOpener::open(std::span<const std::byte> record,
                                                std::span<std::byte> out) {
  std::array<std::byte, 12> nonce = iv_;
  for (std::size_t i = 0; i < 8; ++i)
    nonce[4 + i] ^= static_cast<std::byte>(sequence_ >> (56 - 8 * i));
  const std::size_t inner_bytes = record.size() - kTlsHeaderBytes - kTlsTagBytes;
  const std::byte* sealed = record.data() + kTlsHeaderBytes;
  std::array<unsigned char, kTlsTagBytes> tag{};
  std::memcpy(tag.data(), sealed + inner_bytes, kTlsTagBytes);
  // The type after the content goes elsewhere, so that content fits exactly where it is wanted.
  std::byte last{};
  int moved = 0;
  const bool is_opened =
      EVP_DecryptInit_ex(context_, nullptr, nullptr, nullptr, octets(nonce.data())) == 1 &&
      EVP_DecryptUpdate(context_, nullptr, &moved, octets(record.data()), kTlsHeaderBytes) == 1 &&
      EVP_DecryptUpdate(context_, octets(out.data()), &moved, octets(sealed),
                        static_cast<int>(inner_bytes - 1)) == 1 &&
      EVP_DecryptUpdate(context_, octets(&last), &moved, octets(sealed + inner_bytes - 1), 1) ==
          1 &&
      EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kTlsTagBytes, tag.data()) == 1 &&
      EVP_DecryptFinal_ex(context_, octets(&last), &moved) == 1;
  if (!is_opened) return corrupt("record with a bad authentication tag");
  ++sequence_;
  std::size_t content_bytes = inner_bytes - 1;
  // The type is the last byte that is not 0: what follows it is padding (section 5.4).
  while (last == std::byte{0} && content_bytes > 0) last = out[--content_bytes];
  const auto type = static_cast<TlsContent>(last);
  if (type != TlsContent::kData && type != TlsContent::kHandshake && type != TlsContent::kAlert)
    return corrupt("record of an unknown type");
  if (inner_bytes > kMaxTlsInnerBytes) return corrupt("record with too much content");
  return Opened{content_bytes, type};
}

}  // namespace headrace
