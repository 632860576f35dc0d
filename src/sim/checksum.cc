// CRC-32 and CRC-64 go by tables made at compile time, eight bytes a step. Words are read as
// little-endian, as everywhere here (base/endian.h). Values leave with their high byte first, as
// S3 writes them in base64.
#include "sim/checksum.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <span>

#include "base/crc32c.h"
#include "http/fields.h"

namespace headrace::sim {
namespace {

/// Tables of a reflected CRC for eight bytes at a time ("slicing by 8").
template <class Word>
struct CrcTables {
  Word table[8][256];
  constexpr explicit CrcTables(Word polynomial) : table() {
    for (unsigned i = 0; i < 256; ++i) {
      Word crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? polynomial : Word{0});
      table[0][i] = crc;
    }
    for (unsigned i = 0; i < 256; ++i) {
      for (int slice = 1; slice < 8; ++slice) {
        const Word last = table[slice - 1][i];
        table[slice][i] = (last >> 8) ^ table[0][last & 0xff];
      }
    }
  }
};

// Reflected polynomials: IEEE 802.3; NVM Express (base specification 2.0,
// 64-bit CRC).
constexpr CrcTables<std::uint32_t> kCrc32(0xedb88320U);
constexpr CrcTables<std::uint64_t> kCrc64Nvme(0x9a6c9329ac4bc9b5ULL);

template <class Word>
class CrcChecksum final : public Checksum {
 public:
  explicit CrcChecksum(const CrcTables<Word>& tables) : t_(tables.table) {}

  void update(std::string_view bytes) override {
    Word crc = crc_;
    const char* p = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, p += 8) {
      std::uint64_t word;
      std::memcpy(&word, p, 8);
      word ^= crc;
      crc = t_[7][word & 0xff] ^ t_[6][(word >> 8) & 0xff] ^ t_[5][(word >> 16) & 0xff] ^
            t_[4][(word >> 24) & 0xff] ^ t_[3][(word >> 32) & 0xff] ^ t_[2][(word >> 40) & 0xff] ^
            t_[1][(word >> 48) & 0xff] ^ t_[0][word >> 56];
    }
    for (; left > 0; --left, ++p) {
      crc = (crc >> 8) ^ t_[0][(crc ^ static_cast<unsigned char>(*p)) & 0xff];
    }
    crc_ = crc;
  }

  std::string finish() override {
    const Word value = ~crc_;
    std::string out;
    for (int shift = static_cast<int>(sizeof(Word)) * 8 - 8; shift >= 0; shift -= 8) {
      out += static_cast<char>((value >> shift) & 0xff);
    }
    return out;
  }

 private:
  const Word (&t_)[8][256];
  Word crc_ = static_cast<Word>(~Word{0});
};

class Crc32cChecksum final : public Checksum {
 public:
  void update(std::string_view bytes) override {
    crc_ = crc32c(std::as_bytes(std::span(bytes)), crc_);
  }
  std::string finish() override {
    std::string out;
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((crc_ >> shift) & 0xff);
    return out;
  }

 private:
  std::uint32_t crc_ = 0;
};

class DigestChecksum final : public Checksum {
 public:
  explicit DigestChecksum(EVP_MD_CTX* context) : context_(context, &EVP_MD_CTX_free) {}
  void update(std::string_view bytes) override {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  }
  std::string finish() override {
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_DigestFinal_ex(context_.get(), out, &length);
    return std::string(reinterpret_cast<const char*>(out), length);
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

Result<std::unique_ptr<Checksum>> create_digest(const EVP_MD* digest) {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  if (context == nullptr || EVP_DigestInit_ex(context, digest, nullptr) != 1) {
    EVP_MD_CTX_free(context);
    return Status(Code::kInternal, "OpenSSL refuses a digest");
  }
  return std::unique_ptr<Checksum>(std::make_unique<DigestChecksum>(context));
}

}  // namespace

Result<std::unique_ptr<Checksum>> Checksum::create(ChecksumKind kind) {
  using Pointer = std::unique_ptr<Checksum>;
  switch (kind) {
    case ChecksumKind::kCrc32:
      return Pointer(std::make_unique<CrcChecksum<std::uint32_t>>(kCrc32));
    case ChecksumKind::kCrc32c:
      return Pointer(std::make_unique<Crc32cChecksum>());
    case ChecksumKind::kCrc64Nvme:
      return Pointer(std::make_unique<CrcChecksum<std::uint64_t>>(kCrc64Nvme));
    case ChecksumKind::kMd5:
      return create_digest(EVP_md5());
    case ChecksumKind::kSha1:
      return create_digest(EVP_sha1());
    case ChecksumKind::kSha256:
      break;
  }
  return create_digest(EVP_sha256());
}

bool checksum_kind_of(std::string_view field_name, ChecksumKind& out) noexcept {
  struct Name {
    std::string_view name;
    ChecksumKind kind;
  };
  constexpr std::array<Name, 5> kNames = {{{"x-amz-checksum-crc32", ChecksumKind::kCrc32},
                                           {"x-amz-checksum-crc32c", ChecksumKind::kCrc32c},
                                           {"x-amz-checksum-crc64nvme", ChecksumKind::kCrc64Nvme},
                                           {"x-amz-checksum-sha1", ChecksumKind::kSha1},
                                           {"x-amz-checksum-sha256", ChecksumKind::kSha256}}};
  for (const Name& name : kNames) {
    if (http::equals_ignoring_case(field_name, name.name)) {
      out = name.kind;
      return true;
    }
  }
  return false;
}

std::string to_base64(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(length));
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::string out(text.size() / 4 * 3, '\0');
  const int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()));
  if (length < 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  out.resize(static_cast<std::size_t>(length) - padding);
  return out;
}

}  // namespace headrace::sim
