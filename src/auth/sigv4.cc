// What is signed is what is sent: the caller hands in the path, query and fields as they go over
// the wire, and nothing here may change them. canonical_path() and canonical_query() are for
// callers that build a request, and for the verifier.
//
// The signing itself (four derivation steps, HMAC by hand, contexts that are kept) is in
// hashing.cc. S3 differs from all other services in one rule: its paths are escaped once and never
// normalised, since keys may contain "//" and "..".
#include "auth/sigv4.h"

#include <openssl/evp.h>

#include <algorithm>

#include "auth/hashing.h"
#include "base/check.h"
#include "base/strings.h"
#include "http/date.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

using detail::Digest;
using detail::Scope;

/// "20150830T123600Z" without a heap string.
struct AmzDate {
  char text[16];
  explicit AmzDate(WallTime now) noexcept { http::write_amz_date(now, text); }
  std::string_view full() const noexcept { return std::string_view(text, 16); }
  std::string_view date() const noexcept { return std::string_view(text, 8); }
};

void append_scope(const Scope& scope, std::string& out) {
  out.append(scope.date)
      .append("/")
      .append(scope.region)
      .append("/")
      .append(scope.service)
      .append("/aws4_request");
}

void append_signed_names(std::span<const http::Field> fields, std::string_view separator,
                         std::string& out) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(fields[i].name);
  }
}

/// Removes dot segments and empty segments (RFC 3986 section 5.2.4, plus the squashing of "//").
std::string normalised(std::string_view path) {
  std::vector<std::string_view> kept;
  const bool ends_in_slash = path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view segment = path.substr(0, slash);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    if (segment.empty() || segment == ".") continue;
    if (segment != "..") {
      kept.push_back(segment);
    } else if (!kept.empty()) {
      kept.pop_back();
    }
  }
  std::string out;
  for (std::string_view segment : kept) out.append("/").append(segment);
  if (out.empty() || ends_in_slash) out.push_back('/');
  return out;
}

}  // namespace

Result<std::unique_ptr<SigV4Signer>> SigV4Signer::create(std::string region, std::string service) {
  HEADRACE_TRY_ASSIGN(auto pool, detail::ScratchPool::create());
  return std::unique_ptr<SigV4Signer>(
      new SigV4Signer(std::move(region), std::move(service), std::move(pool)));
}

SigV4Signer::SigV4Signer(std::string region, std::string service,
                         std::unique_ptr<detail::ScratchPool> pool)
    : region_(std::move(region)), service_(std::move(service)), pool_(std::move(pool)) {}

SigV4Signer::~SigV4Signer() = default;

void SigV4Signer::append_authorization(const CanonicalRequest& request,
                                       const Credentials& credentials, WallTime now,
                                       std::string& out) {
  const AmzDate date(now);
  const Scope scope{date.date(), region_, service_};
  Digest digest;
  {
    const detail::Lease scratch(*pool_);
    digest = scratch->sign(request, credentials.secret_access_key, date.full(), scope);
  }
  out.append("AWS4-HMAC-SHA256 Credential=").append(credentials.access_key_id).append("/");
  append_scope(scope, out);
  out.append(", SignedHeaders=");
  append_signed_names(request.fields, ";", out);
  out.append(", Signature=");
  detail::append_hex(digest, out);
}

std::string SigV4Signer::signature(const CanonicalRequest& request, const Credentials& credentials,
                                   WallTime now) {
  const AmzDate date(now);
  const detail::Lease scratch(*pool_);
  std::string hex;
  detail::append_hex(scratch->sign(request, credentials.secret_access_key, date.full(),
                                   Scope{date.date(), region_, service_}),
                     hex);
  return hex;
}

std::string SigV4Signer::presigned_query(const CanonicalRequest& request,
                                         const Credentials& credentials, WallTime now,
                                         std::chrono::seconds lifetime) {
  const AmzDate date(now);
  std::string credential = credentials.access_key_id + "/";
  append_scope(Scope{date.date(), region_, service_}, credential);

  std::string query(request.query);
  if (!query.empty()) query.push_back('&');
  query.append("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=");
  http::append_encoded(credential, http::Slash::kEscape, query);
  query.append("&X-Amz-Date=").append(date.full());
  query.append("&X-Amz-Expires=").append(std::to_string(lifetime.count()));
  if (!credentials.session_token.empty()) {
    query.append(service_ == "s3express" ? "&X-Amz-S3session-Token=" : "&X-Amz-Security-Token=");
    http::append_encoded(credentials.session_token, http::Slash::kEscape, query);
  }
  query.append("&X-Amz-SignedHeaders=");
  append_signed_names(request.fields, "%3B", query);

  // Sorted as a whole: the caller's parameters lie among ours.
  auto canonical = canonical_query(query);
  HEADRACE_CHECK(
      canonical.has_value());  // the caller's part is canonical already, ours is escaped above
  CanonicalRequest full = request;
  full.query = *canonical;
  return *canonical + "&X-Amz-Signature=" + signature(full, credentials, now);
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Digest digest;
  HEADRACE_CHECK(
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1);
  std::string hex;
  detail::append_hex(digest, hex);
  return hex;
}

std::string sha256_hex(std::string_view bytes) {
  return sha256_hex(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

std::string canonical_path(std::string_view escaped_path, PathRules rules) {
  if (escaped_path.empty()) return "/";
  if (rules == PathRules::kS3) return std::string(escaped_path);
  return http::encode(normalised(escaped_path), http::Slash::kKeep);
}

Result<std::string> canonical_query(std::string_view query, std::string_view without) {
  HEADRACE_TRY_ASSIGN(const http::QueryList parameters,
                      http::parse_query(query, http::Plus::kLiteral));
  std::vector<std::pair<std::string, std::string>> pieces;
  for (const auto& [name, value] : parameters) {
    if (!without.empty() && name == without) continue;
    // Decoded and escaped anew, since clients escape differently ('~', lower-case hex) and both
    // sides must come to the same bytes. They are sorted in their escaped form.
    pieces.emplace_back(http::encode(name, http::Slash::kEscape),
                        http::encode(value, http::Slash::kEscape));
  }
  std::sort(pieces.begin(), pieces.end());
  std::string out;
  for (const auto& [name, value] : pieces) {
    if (!out.empty()) out.push_back('&');
    out.append(name).append("=").append(value);
  }
  return out;
}

std::vector<http::Field> canonical_fields(std::string_view fields, std::string_view signed_names,
                                          std::string& storage) {
  struct Entry {
    std::string_view name;
    std::size_t begin, end;
  };
  std::vector<Entry> entries;
  storage.clear();
  while (!signed_names.empty()) {
    const std::size_t semicolon = signed_names.find(';');
    const std::string_view name = signed_names.substr(0, semicolon);
    signed_names.remove_prefix(semicolon == std::string_view::npos ? signed_names.size()
                                                                   : semicolon + 1);
    const std::size_t begin = storage.size();
    bool is_first = true;
    http::Field field;
    for (std::string_view rest = fields; http::next_field(rest, field);) {
      if (!http::equals_ignoring_case(field.name, name)) continue;
      // Repeated fields are joined in the order in which they came.
      if (!is_first) storage.push_back(',');
      is_first = false;
      detail::append_squeezed(field.value, storage);
    }
    entries.push_back({name, begin, storage.size()});
  }
  // Views only now: `storage` does not grow any more.
  std::vector<http::Field> out;
  out.reserve(entries.size());
  for (const Entry& entry : entries) {
    out.push_back(
        {entry.name, std::string_view(storage).substr(entry.begin, entry.end - entry.begin)});
  }
  return out;
}

}  // namespace headrace::auth
