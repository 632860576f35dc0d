// The order of the table is what check_digest() chooses by: the first one that the list has is
// compared and no other. It must therefore stay sorted by cost.
#include "shard/codec/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <memory>

namespace headrace::detail {
namespace {

struct Name {
  std::string_view name;     // As hashlib and xxhash for Python call it.
  const char* openssl_name;  // nullptr: xxHash.
};

// Cheapest first, by measured order of magnitude: xxHash far ahead, then SHA-1/SHA-2 in hardware,
// the rest in software.
constexpr Name kDigests[] = {{"xxh3_64", nullptr},
                             {"xxh3_128", nullptr},
                             {"xxh128", nullptr},
                             {"xxh64", nullptr},
                             {"xxh32", nullptr},
                             {"sha1", "SHA1"},
                             {"sha256", "SHA256"},
                             {"sha224", "SHA224"},
                             {"blake2b", "BLAKE2b512"},
                             {"blake2s", "BLAKE2s256"},
                             {"sha512", "SHA512"},
                             {"sha384", "SHA384"},
                             {"md5", "MD5"},
                             {"sha3_224", "SHA3-224"},
                             {"sha3_256", "SHA3-256"},
                             {"sha3_384", "SHA3-384"},
                             {"sha3_512", "SHA3-512"}};

// The hex digits of `name` in the list; empty when it is not there.
std::string_view find(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(' '));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

}  // namespace

bool is_known_digest(std::string_view name) {
  for (const Name& known : kDigests) {
    if (known.name == name) return true;
  }
  return false;
}

// One of the two is set.
struct Digester::State {
  ~State() {
    XXH32_freeState(xxh32);
    XXH64_freeState(xxh64);
    XXH3_freeState(xxh3);
    EVP_MD_CTX_free(evp);
  }
  XXH32_state_t* xxh32 = nullptr;
  XXH64_state_t* xxh64 = nullptr;
  XXH3_state_t* xxh3 = nullptr;
  bool is_128 = false;
  EVP_MD_CTX* evp = nullptr;
};

Digester::Digester(std::unique_ptr<State> state) : state_(std::move(state)) {}
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;
Digester::~Digester() = default;

std::optional<Digester> Digester::create(std::string_view name) {
  const auto known = std::find_if(std::begin(kDigests), std::end(kDigests),
                                  [name](const Name& n) { return n.name == name; });
  if (known == std::end(kDigests)) return std::nullopt;
  auto state = std::make_unique<State>();
  if (known->openssl_name != nullptr) {
    const std::unique_ptr<EVP_MD, decltype(&EVP_MD_free)> kind(
        EVP_MD_fetch(nullptr, known->openssl_name, nullptr), &EVP_MD_free);
    state->evp = EVP_MD_CTX_new();
    if (!kind || state->evp == nullptr || EVP_DigestInit_ex2(state->evp, kind.get(), nullptr) != 1)
      return std::nullopt;
  } else if (name == "xxh32") {
    state->xxh32 = XXH32_createState();
    XXH32_reset(state->xxh32, 0);
  } else if (name == "xxh64") {
    state->xxh64 = XXH64_createState();
    XXH64_reset(state->xxh64, 0);
  } else {
    state->xxh3 = XXH3_createState();
    state->is_128 = name != "xxh3_64";
    if (state->is_128) {
      XXH3_128bits_reset(state->xxh3);
    } else {
      XXH3_64bits_reset(state->xxh3);
    }
  }
  return Digester(std::move(state));
}

void Digester::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (state_->evp != nullptr) {
    EVP_DigestUpdate(state_->evp, bytes.data(), bytes.size());
  } else if (state_->xxh32 != nullptr) {
    XXH32_update(state_->xxh32, bytes.data(), bytes.size());
  } else if (state_->xxh64 != nullptr) {
    XXH64_update(state_->xxh64, bytes.data(), bytes.size());
  } else if (state_->is_128) {
    XXH3_128bits_update(state_->xxh3, bytes.data(), bytes.size());
  } else {
    XXH3_64bits_update(state_->xxh3, bytes.data(), bytes.size());
  }
}

std::string Digester::finish() {
  if (state_->xxh32 != nullptr) return fmt::format("{:08x}", XXH32_digest(state_->xxh32));
  if (state_->xxh64 != nullptr) return fmt::format("{:016x}", XXH64_digest(state_->xxh64));
  if (state_->xxh3 != nullptr && !state_->is_128)
    return fmt::format("{:016x}", XXH3_64bits_digest(state_->xxh3));
  if (state_->xxh3 != nullptr) {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh3);
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->evp, digest, &size);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string hex_digest(std::string_view name, std::span<const std::byte> bytes) {
  auto digester = Digester::create(name);
  if (!digester) return {};
  digester->update(bytes);
  return digester->finish();
}

Status check_digest(std::string_view list, std::span<const std::byte> bytes) {
  for (const Name& known : kDigests) {
    const std::string_view expected = find(list, known.name);
    if (expected.empty()) continue;
    const std::string actual = hex_digest(known.name, bytes);
    if (actual.empty()) continue;  // A FIPS provider may refuse the weak ones.
    if (actual == expected) return Status();
    return Status(Code::kCorrupt, fmt::format("{} of {} bytes is {}, the index says {}", known.name,
                                              bytes.size(), actual, expected));
  }
  return Status();
}

}  // namespace headrace::detail
