// TLS 1.3 records from a server that has the keys: what it seals is the fuzzer's. Checks, besides
// memory errors: content and type are what RFC 8446, section 5.2 says, and one changed bit is
// found.
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "net/tls_record.h"
#include "require.h"

namespace {

using headrace::kMaxTlsInnerBytes;
using headrace::kTlsHeaderBytes;
using headrace::kTlsTagBytes;
using headrace::RecordOpener;
using headrace::tls_record_bytes;
using headrace::TlsSuite;
using Bytes = std::vector<std::byte>;

// HKDF-Expand-Label of a secret of 32 zeros.
constexpr std::array<unsigned char, 16> kKey = {0xcb, 0xee, 0x75, 0x71, 0xc6, 0x11, 0x03, 0x9c,
                                                0xa3, 0x27, 0xa2, 0xe8, 0x79, 0xdf, 0xcd, 0x45};
constexpr std::array<unsigned char, 12> kIv = {0x3f, 0x22, 0xfb, 0xb6, 0x1c, 0x14,
                                               0x12, 0xe6, 0x92, 0x98, 0x6d, 0x64};

/// The record number `sequence` (below 256) with `inner`: content, type, padding.
Bytes sealed(std::span<const std::uint8_t> inner, unsigned char sequence) {
  const std::size_t length = inner.size() + kTlsTagBytes;
  Bytes record(kTlsHeaderBytes + length);
  auto* out = reinterpret_cast<unsigned char*>(record.data());
  const unsigned char header[] = {23, 3, 3, static_cast<unsigned char>(length >> 8),
                                  static_cast<unsigned char>(length)};
  std::copy(header, header + kTlsHeaderBytes, out);
  auto nonce = kIv;
  nonce.back() = static_cast<unsigned char>(nonce.back() ^ sequence);
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  int moved = 0;
  unsigned char none[16];
  require(EVP_EncryptInit_ex(context, EVP_aes_128_gcm(), nullptr, kKey.data(), nonce.data()) == 1 &&
          EVP_EncryptUpdate(context, nullptr, &moved, out, kTlsHeaderBytes) == 1 &&
          EVP_EncryptUpdate(context, out + kTlsHeaderBytes, &moved, inner.data(),
                            static_cast<int>(inner.size())) == 1 &&
          EVP_EncryptFinal_ex(context, none, &moved) == 1 &&
          EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTlsTagBytes,
                              out + kTlsHeaderBytes + inner.size()) == 1);
  EVP_CIPHER_CTX_free(context);
  return record;
}

std::unique_ptr<RecordOpener> opener() {
  constexpr std::array<std::byte, 32> kSecret{};
  return *RecordOpener::create(TlsSuite::kAes128GcmSha256, kSecret);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto raw = std::as_bytes(std::span(data, size));
  if (const auto bytes = tls_record_bytes(raw); bytes && *bytes > 0 && *bytes <= size) {
    Bytes out(*bytes);
    require(!opener()->open(raw.first(*bytes), out));  // nobody guesses a tag
  }
  if (size < 2) return 0;
  const std::size_t changed = data[0];
  const std::span<const std::uint8_t> inner(data + 1, std::min(size - 1, kMaxTlsInnerBytes));
  const auto good = opener();
  for (unsigned char sequence = 0; sequence < 2; ++sequence) {
    Bytes record = sealed(inner, sequence);
    const auto bytes = tls_record_bytes(record);
    require(bytes && *bytes == record.size());
    Bytes out(record.size() - kTlsHeaderBytes - kTlsTagBytes - 1);
    auto opened = good->open(record, out);
    std::size_t end = inner.size();
    while (end > 0 && inner[end - 1] == 0) --end;
    const bool has_type = end > 0 && inner[end - 1] >= 21 && inner[end - 1] <= 23;
    require(opened.has_value() == has_type);
    if (!opened) return 0;
    require(opened->content_bytes == end - 1);
    require(static_cast<std::uint8_t>(opened->type) == inner[end - 1]);
    require(end == 1 || std::memcmp(out.data(), inner.data(), end - 1) == 0);
    const std::size_t at = kTlsHeaderBytes + changed % (record.size() - kTlsHeaderBytes);
    record[at] ^= std::byte{1};
    const auto victim = opener();
    if (sequence == 0) require(!victim->open(record, out));
  }
  return 0;
}
