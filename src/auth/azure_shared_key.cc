// Shared Key signs a text of its own: method, eleven standard fields by place (empty lines where
// one is missing), all x-ms- fields, then the path and the query decoded. Reference: "Authorize
// with Shared Key".
//
// The key is decoded once into the two padded blocks of HMAC; a signature is then two runs of
// SHA-256, with nothing allocated. The blocks are wiped at the end.
#include "auth/azure_shared_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "auth/hashing.h"
#include "base/base64.h"
#include "base/check.h"
#include "http/date.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

using Block = std::array<char, 64>;  // of SHA-256
using Digest = detail::Sha256Digest;

std::string_view view(const Digest& digest) noexcept {
  return std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size());
}

/// Version whose rules blob_sas_query() follows: the first with a field for the encryption scope.
constexpr std::string_view kSasVersion = "2020-12-06";

/// What stands in the string to sign between the method and the x-ms- fields, in this order.
constexpr std::array<std::string_view, 11> kStandardFields = {"content-encoding",
                                                              "content-language",
                                                              "content-length",
                                                              "content-md5",
                                                              "content-type",
                                                              "date",
                                                              "if-modified-since",
                                                              "if-match",
                                                              "if-none-match",
                                                              "if-unmodified-since",
                                                              "range"};

bool is_account_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 64) return false;
  for (char c : name) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return false;
  }
  return true;
}

std::string_view value_of(std::span<const http::Field> fields, std::string_view name) noexcept {
  for (const http::Field& field : fields) {
    if (field.name == name) return field.value;
  }
  return {};
}

}  // namespace

void append_string_to_sign(const SharedKeyRequest& request, std::string_view account,
                           std::string& out) {
  out.append(request.method).push_back('\n');
  for (const std::string_view name : kStandardFields) {
    const std::string_view value = value_of(request.fields, name);
    // Since version 2015-02-21 no length stands for none.
    if (!(name == "content-length" && value == "0")) out.append(value);
    out.push_back('\n');
  }
  for (const http::Field& field : request.fields) {
    if (!field.name.starts_with("x-ms-")) continue;
    out.append(field.name).append(":").append(field.value).push_back('\n');
  }
  out.append("/").append(account).append(request.path.empty() ? "/" : request.path);
  for (std::size_t i = 0; i < request.query.size(); ++i) {
    const http::Field& parameter = request.query[i];
    const bool is_repeated = i > 0 && request.query[i - 1].name == parameter.name;
    if (is_repeated) {
      out.push_back(',');
    } else {
      out.append("\n").append(parameter.name).push_back(':');
    }
    out.append(parameter.value);
  }
}

/// One user at a time: a hash context and the text to sign.
struct SharedKeySigner::Scratch {
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  std::string text;

  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { EVP_MD_CTX_free(context); }

  bool start() const {
    return context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1;
  }

  /// SHA-256 of both.
  Digest hash(const Block& first, std::string_view second) const {
    return detail::hash(context, {first.data(), first.size()}, second);
  }
};

Result<std::unique_ptr<SharedKeySigner>> SharedKeySigner::create(std::string account,
                                                                 std::string_view key_base64) {
  if (!is_account_name(account)) {
    return Status(Code::kInvalidArgument,
                  "\"" + account + "\" is not the name of an Azure storage account");
  }
  auto key = decode_base64(key_base64);
  if (!key || key->empty()) {
    return Status(Code::kInvalidArgument,
                  "the key of the Azure storage account " + account +
                      " is not base64; copy it whole, with the '=' signs at its end");
  }
  std::unique_ptr<SharedKeySigner> signer(new SharedKeySigner(std::move(account)));
  auto first = std::make_unique<Scratch>();
  if (!first->start() || !signer->set_key(*key))
    return Status(Code::kInternal, "OpenSSL offers no SHA-256");
  OPENSSL_cleanse(key->data(), key->size());
  signer->give_back(std::move(first));
  return signer;
}

SharedKeySigner::SharedKeySigner(std::string account) : account_(std::move(account)) {}

SharedKeySigner::~SharedKeySigner() {
  OPENSSL_cleanse(inner_pad_.data(), inner_pad_.size());
  OPENSSL_cleanse(outer_pad_.data(), outer_pad_.size());
}

bool SharedKeySigner::set_key(std::string_view key) {
  Digest short_key;
  if (key.size() > inner_pad_.size()) {
    if (EVP_Digest(key.data(), key.size(), short_key.data(), nullptr, EVP_sha256(), nullptr) != 1)
      return false;
    key = view(short_key);
  }
  for (std::size_t i = 0; i < inner_pad_.size(); ++i) {
    const char k = i < key.size() ? key[i] : '\0';
    inner_pad_[i] = static_cast<char>(k ^ 0x36);  // RFC 2104
    outer_pad_[i] = static_cast<char>(k ^ 0x5c);
  }
  OPENSSL_cleanse(short_key.data(), short_key.size());
  return true;
}

detail::Sha256Digest SharedKeySigner::hmac(const Scratch& scratch, std::string_view text) const {
  return scratch.hash(outer_pad_, view(scratch.hash(inner_pad_, text)));
}

std::unique_ptr<SharedKeySigner::Scratch> SharedKeySigner::take() {
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      auto scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  auto scratch = std::make_unique<Scratch>();
  const bool is_good = scratch->start();
  HEADRACE_CHECK(is_good);  // it worked before: out of memory
  return scratch;
}

void SharedKeySigner::give_back(std::unique_ptr<Scratch> scratch) {
  MutexLock lock(mutex_);
  idle_.push_back(std::move(scratch));
}

void SharedKeySigner::append_signature(std::string_view text, std::string& out) {
  auto scratch = take();
  append_base64(view(hmac(*scratch, text)), out);
  give_back(std::move(scratch));
}

void SharedKeySigner::append_authorization(const SharedKeyRequest& request, std::string& out) {
  auto scratch = take();
  scratch->text.clear();
  append_string_to_sign(request, account_, scratch->text);
  const auto digest = hmac(*scratch, scratch->text);
  give_back(std::move(scratch));
  out.append("SharedKey ").append(account_).push_back(':');
  append_base64(view(digest), out);
}

std::string blob_sas_query(const BlobSas& sas, SharedKeySigner& signer) {
  std::string expiry = http::format_iso_date(sas.expires);
  expiry = expiry.substr(0, 19) + "Z";
  const std::string resource = sas.version_id.empty() ? "b" : "bv";
  // permissions, start, expiry, resource, policy, address, protocol, version, kind, snapshot or
  // version of the blob, encryption scope, then five fields that answers would carry.
  const std::string text = sas.permissions + "\n\n" + expiry + "\n/blob/" + signer.account() + "/" +
                           sas.container + "/" + sas.blob + "\n\n\n" + sas.protocol + "\n" +
                           std::string(kSasVersion) + "\n" + resource + "\n" + sas.version_id +
                           "\n\n\n\n\n\n";
  std::string signature;
  signer.append_signature(text, signature);
  std::string query = "se=" + http::encode(expiry, http::Slash::kEscape) + "&sp=" + sas.permissions;
  if (!sas.protocol.empty()) query += "&spr=" + http::encode(sas.protocol, http::Slash::kEscape);
  query += "&sv=" + std::string(kSasVersion) + "&sr=" + resource;
  if (!sas.version_id.empty())
    query += "&versionid=" + http::encode(sas.version_id, http::Slash::kEscape);
  return query + "&sig=" + http::encode(signature, http::Slash::kEscape);
}

}  // namespace headrace::auth
