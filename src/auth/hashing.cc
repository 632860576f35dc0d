// Where the time of a signature goes. EVP contexts keep their digest between uses, so starting
// anew allocates nothing; each Scratch keeps its last derived key, so the four steps of the
// derivation run once a day, region and secret. Keys and secrets are wiped when a Scratch goes.
//
// Layout of what is signed: AWS, "Create a signed AWS API request".
#include "auth/hashing.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/strings.h"

namespace headrace::auth::detail {
namespace {

constexpr std::size_t kBlockBytes = 64;  // of SHA-256

std::string_view view(const Digest& digest) noexcept {
  return std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size());
}

}  // namespace

void append_squeezed(std::string_view value, std::string& out) {
  value = trim(value);
  for (std::size_t run = value.find("  "); run != std::string_view::npos; run = value.find("  ")) {
    out.append(value.substr(0, run + 1));
    value.remove_prefix(std::min(value.find_first_not_of(' ', run), value.size()));
  }
  out.append(value);
}

void append_hex(const Digest& digest, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  char text[2 * sizeof(Digest)];
  for (std::size_t i = 0; i < digest.size(); ++i) {
    text[2 * i] = kHex[digest[i] >> 4];
    text[2 * i + 1] = kHex[digest[i] & 15];
  }
  out.append(text, sizeof(text));
}

std::unique_ptr<Scratch> Scratch::create(const EVP_MD* md) {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  if (context == nullptr) return nullptr;
  std::unique_ptr<Scratch> scratch(new Scratch(context));
  if (EVP_DigestInit_ex(context, md, nullptr) != 1) return nullptr;
  return scratch;
}

Scratch::~Scratch() {
  EVP_MD_CTX_free(context_);
  OPENSSL_cleanse(key_.data(), key_.size());
  OPENSSL_cleanse(secret_.data(), secret_.size());
}

Digest hash(EVP_MD_CTX* context, std::string_view first, std::string_view second) {
  Digest digest;
  // Without a digest argument the context starts anew with the one it has, and allocates nothing;
  // copying a keyed context would.
  const bool is_good = EVP_DigestInit_ex(context, nullptr, nullptr) == 1 &&
                       EVP_DigestUpdate(context, first.data(), first.size()) == 1 &&
                       EVP_DigestUpdate(context, second.data(), second.size()) == 1 &&
                       EVP_DigestFinal_ex(context, digest.data(), nullptr) == 1;
  HEADRACE_CHECK(is_good);
  return digest;
}

// RFC 2104. By hand, since EVP_MAC allocates at every start and one more block is cheaper than
// copying a keyed context.
Digest Scratch::hmac(std::string_view key, std::string_view text) {
  Digest hashed_key;
  if (key.size() > kBlockBytes) {
    hashed_key = hash(key);
    key = view(hashed_key);
  }
  char inner_pad[kBlockBytes];
  char outer_pad[kBlockBytes];
  for (std::size_t i = 0; i < kBlockBytes; ++i) {
    const char k = i < key.size() ? key[i] : '\0';
    inner_pad[i] = static_cast<char>(k ^ 0x36);
    outer_pad[i] = static_cast<char>(k ^ 0x5c);
  }
  const Digest inner = hash(std::string_view(inner_pad, kBlockBytes), text);
  return hash(std::string_view(outer_pad, kBlockBytes), view(inner));
}

const Digest& Scratch::signing_key(std::string_view secret, const Scope& scope) {
  if (date_ == scope.date && secret_ == secret && region_ == scope.region &&
      service_ == scope.service)
    return key_;
  date_.assign(scope.date);
  secret_.assign(secret);
  region_.assign(scope.region);
  service_.assign(scope.service);
  std::string start = "AWS4" + secret_;
  key_ = hmac(start, scope.date);
  OPENSSL_cleanse(start.data(), start.size());
  key_ = hmac(view(key_), scope.region);
  key_ = hmac(view(key_), scope.service);
  key_ = hmac(view(key_), "aws4_request");
  return key_;
}

Digest Scratch::sign(const CanonicalRequest& request, std::string_view secret,
                     std::string_view amz_date, const Scope& scope) {
  text_.clear();
  text_.append(request.method).append("\n").append(request.path.empty() ? "/" : request.path);
  text_.append("\n").append(request.query).append("\n");
  for (const http::Field& field : request.fields) {
    text_.append(field.name).append(":");
    append_squeezed(field.value, text_);
    text_.append("\n");
  }
  text_.push_back('\n');
  for (const http::Field& field : request.fields) text_.append(field.name).append(";");
  if (!request.fields.empty()) text_.pop_back();
  text_.append("\n").append(request.payload_hash);
  const Digest request_hash = hash(text_);

  text_.assign("AWS4-HMAC-SHA256\n").append(amz_date).append("\n").append(scope.date);
  text_.append("/")
      .append(scope.region)
      .append("/")
      .append(scope.service)
      .append("/aws4_request\n");
  append_hex(request_hash, text_);
  return hmac(view(signing_key(secret, scope)), text_);
}

Result<std::unique_ptr<ScratchPool>> ScratchPool::create() {
  EVP_MD* md = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  if (md == nullptr) return Status(Code::kInternal, "OpenSSL offers no SHA-256");
  std::unique_ptr<ScratchPool> pool(new ScratchPool(md));
  auto first = Scratch::create(md);
  if (first == nullptr) return Status(Code::kInternal, "OpenSSL cannot start SHA-256");
  pool->give_back(std::move(first));
  return pool;
}

ScratchPool::~ScratchPool() {
  idle_.clear();
  EVP_MD_free(md_);
}

std::unique_ptr<Scratch> ScratchPool::take() {
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      auto scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  auto scratch = Scratch::create(md_);
  HEADRACE_CHECK(scratch != nullptr);  // it worked before: out of memory
  return scratch;
}

void ScratchPool::give_back(std::unique_ptr<Scratch> scratch) {
  MutexLock lock(mutex_);
  idle_.push_back(std::move(scratch));
}

}  // namespace headrace::auth::detail
