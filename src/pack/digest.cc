#include "pack/digest.h"

#include <array>
#include <cstdio>

#include "base/check.h"
#include "base/strings.h"

namespace headrace::pack_detail {

Result<Digest> Digest::create(std::string_view name) {
  Digest digest;
  if (name == "xxh64") {
    digest.xxh64_.reset(XXH64_createState());
    XXH64_reset(digest.xxh64_.get(), 0);
  } else if (name == "xxh3_64") {
    digest.xxh3_.reset(XXH3_createState());
    XXH3_64bits_reset(digest.xxh3_.get());
  } else if (name == "sha1" || name == "sha256") {
    digest.evp_.reset(EVP_MD_CTX_new());
    const EVP_MD* method = name == "sha1" ? EVP_sha1() : EVP_sha256();
    if (EVP_DigestInit_ex(digest.evp_.get(), method, nullptr) != 1) {
      return Status(Code::kUnsupported,
                    "hash '" + std::string(name) + "' is switched off in OpenSSL");
    }
  } else {
    return Status(Code::kUnsupported,
                  "hash '" + std::string(name) + "': known are sha1, sha256, xxh64, xxh3_64");
  }
  return digest;
}

void Digest::update(std::span<const std::byte> bytes) {
  if (evp_) HEADRACE_CHECK(EVP_DigestUpdate(evp_.get(), bytes.data(), bytes.size()) == 1);
  if (xxh64_) XXH64_update(xxh64_.get(), bytes.data(), bytes.size());
  if (xxh3_) XXH3_64bits_update(xxh3_.get(), bytes.data(), bytes.size());
}

std::string Digest::finish() {
  if (evp_) {
    std::array<std::byte, EVP_MAX_MD_SIZE> out{};
    unsigned length = 0;
    HEADRACE_CHECK(
        EVP_DigestFinal_ex(evp_.get(), reinterpret_cast<unsigned char*>(out.data()), &length) == 1);
    return to_hex(std::span(out).first(length));
  }
  const XXH64_hash_t value = xxh64_ ? XXH64_digest(xxh64_.get()) : XXH3_64bits_digest(xxh3_.get());
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

}  // namespace headrace::pack_detail
