// A header, the tag, the text. The salt follows from key, purpose and text: so no two texts share a
// key, and whoever seals one again gets the same bytes, which lets writers compare what they find
// with what they meant.
#include "headrace/sealed_text.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "seal/seal_header.h"
#include "seal/sealer.h"

namespace headrace {
namespace {

using seal::kSealHeaderBytes;
using seal::kTagBytes;

constexpr std::string_view kSaltPurpose = "headrace salt of a text";
constexpr std::size_t kTextAt = kSealHeaderBytes + kTagBytes;

std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text));
}

seal::Salt salt_of(const SealKey& key, std::string_view purpose, std::string_view text) {
  SealKey::Bytes keyed =
      key.derive(std::string(kSaltPurpose) + std::string(purpose), bytes_of(text));
  seal::Salt salt;
  std::copy_n(keyed.begin(), salt.size(), salt.begin());
  OPENSSL_cleanse(keyed.data(), keyed.size());
  return salt;
}

}  // namespace

std::string seal_text(const SealKey& key, std::string_view purpose, std::string_view text) {
  const seal::Salt salt = salt_of(key, purpose, text);
  std::string out = seal::make_seal_header(key, salt);
  out.resize(kTextAt + text.size());
  const auto bytes = std::as_writable_bytes(std::span(out));
  seal::Sealer(key, purpose, salt)
      .seal(0, bytes.first(kSealHeaderBytes), bytes_of(text), bytes.subspan(kTextAt),
            bytes.subspan<kSealHeaderBytes, kTagBytes>());
  return out;
}

Result<std::string> open_text(const SealKey* key, std::string_view purpose, std::string_view text) {
  if (key == nullptr && !seal::has_seal_header(text)) return std::string(text);
  HEADRACE_TRY_ASSIGN(const seal::Salt salt, seal::read_seal_header(text, key));
  if (text.size() < kTextAt) return Status(Code::kCorrupt, "ends too early");
  const auto bytes = bytes_of(text);
  std::string out(text.size() - kTextAt, '\0');
  if (seal::Sealer(*key, purpose, salt)
          .open(0, bytes.first(kSealHeaderBytes), bytes.subspan(kTextAt),
                std::as_writable_bytes(std::span(out)),
                bytes.subspan<kSealHeaderBytes, kTagBytes>()))
    return out;
  return Status(Code::kCorrupt, "is not what was encrypted under its key");
}

}  // namespace headrace
