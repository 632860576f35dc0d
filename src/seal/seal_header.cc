#include "seal/seal_header.h"

#include <cstring>

#include "base/endian.h"
#include "base/strings.h"

namespace headrace::seal {
namespace {

constexpr std::string_view kMagic = "HRSEALED";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kIdAt = 16;
constexpr std::size_t kSaltAt = kIdAt + SealKey::kIdBytes;

}  // namespace

std::string make_seal_header(const SealKey& key, std::span<const std::byte, kSaltBytes> salt) {
  std::string out(kMagic);
  out.resize(kIdAt);
  store_le<std::uint32_t>(reinterpret_cast<std::byte*>(out.data()) + kMagic.size(), kVersion);
  from_hex(key.id(), out);
  out.append(reinterpret_cast<const char*>(salt.data()), salt.size());
  return out;
}

bool has_seal_header(std::string_view bytes) noexcept {
  return bytes.size() >= kSealHeaderBytes && bytes.starts_with(kMagic);
}

Result<Salt> read_seal_header(std::string_view bytes, const SealKey* key) {
  if (!has_seal_header(bytes))
    return Status(Code::kDenied, "is not encrypted, and a key was given: read it without one");
  const auto* const at = reinterpret_cast<const std::byte*>(bytes.data());
  if (load_le<std::uint32_t>(at + kMagic.size()) != kVersion)
    return Status(Code::kUnsupported, "is encrypted in a way that this version does not know");
  const std::string id = to_hex(bytes.substr(kIdAt, SealKey::kIdBytes));
  if (key == nullptr)
    return Status(Code::kDenied, "is encrypted under the key " + id + "; say where that is");
  if (key->id() != id)
    return Status(Code::kDenied,
                  "is encrypted under the key " + id + "; the key given is " + key->id());
  Salt salt;
  std::memcpy(salt.data(), at + kSaltAt, salt.size());
  return salt;
}

}  // namespace headrace::seal
