// The server's side, for the simulator. The order of the checks decides which of S3's codes a
// client gets: form, key id, region and service, token, time, what is signed, and the signature
// last.
//
// What was signed is made again from the request as it came; path and query go through the
// canonical form first, since clients escape more or less on the wire than in what they sign. The
// comparison takes the same time wherever the two differ.
#include <openssl/crypto.h>

#include "auth/hashing.h"
#include "auth/sigv4.h"
#include "base/list_item.h"
#include "base/strings.h"
#include "http/date.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

// Bounds the work for one hostile head: names times fields.
constexpr std::size_t kMaxSignedNames = 96;

/// What a request says about its own signature, whichever way it came.
struct Claim {
  std::string access_key_id, date, region, service;
  std::string signed_names;
  std::string signature;
  std::string amz_date;
  std::string session_token;
  std::string payload_hash;
  bool is_presigned = false;
  std::uint64_t lifetime_s = 0;  // presigned only
};

Verdict refuse(std::string_view code, std::string message) {
  Verdict verdict;
  verdict.error_code = code;
  verdict.message = std::move(message);
  return verdict;
}

/// "AKID/20150830/us-east-1/s3/aws4_request", from the right, as an access key may hold a slash.
bool parse_credential(std::string_view text, Claim& claim) {
  constexpr std::string_view kEnd = "/aws4_request";
  if (!text.ends_with(kEnd)) return false;
  text.remove_suffix(kEnd.size());
  for (std::string* part : {&claim.service, &claim.region, &claim.date}) {
    const std::size_t slash = text.rfind('/');
    if (slash == std::string_view::npos) return false;
    *part = text.substr(slash + 1);
    text.remove_suffix(text.size() - slash);
  }
  claim.access_key_id = text;
  return !text.empty() && claim.date.size() == 8;
}

/// Reads "Credential=..., SignedHeaders=..., Signature=..." (the spaces are optional).
bool parse_authorization(std::string_view text, Claim& claim) {
  bool has_credential = false;
  while (!text.empty()) {
    const std::string_view piece = take_item(text);
    const std::size_t equals = piece.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view name = piece.substr(0, equals);
    const std::string_view value = piece.substr(equals + 1);
    if (name == "Credential") {
      has_credential = parse_credential(value, claim);
    } else if (name == "SignedHeaders") {
      claim.signed_names = value;
    } else if (name == "Signature") {
      claim.signature = value;
    }
  }
  return has_credential && !claim.signed_names.empty() && claim.signature.size() == 64;
}

/// Fills `claim` from a presigned query. False when a parameter is missing or malformed.
bool parse_presigned(const http::QueryList& query, Claim& claim) {
  bool has_credential = false;
  bool has_lifetime = false;
  for (const auto& [name, value] : query) {
    if (name == "X-Amz-Credential") has_credential = parse_credential(value, claim);
    if (name == "X-Amz-SignedHeaders") claim.signed_names = value;
    if (name == "X-Amz-Signature") claim.signature = value;
    if (name == "X-Amz-Date") claim.amz_date = value;
    if (name == "X-Amz-Security-Token") claim.session_token = value;
    if (name == "X-Amz-Expires") {
      const auto lifetime = parse_decimal<std::uint64_t>(value);
      has_lifetime = lifetime && *lifetime >= 1 && *lifetime <= 604'800;  // seven days, S3's limit
      claim.lifetime_s = lifetime.value_or(0);
    }
  }
  return has_credential && has_lifetime && !claim.signed_names.empty() &&
         claim.signature.size() == 64;
}

/// Good, anonymous, or malformed.
Verdict read_claim(const http::RequestHead& request, Claim& claim) {
  constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256 ";
  const std::string_view authorization = request.header("authorization");
  claim.payload_hash = request.header("x-amz-content-sha256");
  if (!authorization.empty()) {
    if (!authorization.starts_with(kAlgorithm) ||
        !parse_authorization(authorization.substr(kAlgorithm.size()), claim)) {
      return refuse("AuthorizationHeaderMalformed",
                    "The authorization header you provided is invalid.");
    }
    claim.amz_date = request.header("x-amz-date");
    if (claim.amz_date.empty()) {
      if (const auto date = http::parse_http_date(request.header("date"))) {
        claim.amz_date.resize(16);
        http::write_amz_date(*date, claim.amz_date.data());
      }
    }
    claim.session_token = request.header("x-amz-security-token");
    if (claim.payload_hash.empty()) {
      return refuse("InvalidRequest",
                    "Missing required header for this request: x-amz-content-sha256");
    }
    return {};
  }
  if (request.query.find("X-Amz-Signature=") == std::string_view::npos) {
    Verdict verdict = refuse("AccessDenied", "Access Denied");
    verdict.is_anonymous = true;
    return verdict;
  }
  claim.is_presigned = true;
  const auto query = http::parse_query(request.query);
  if (!query || !parse_presigned(*query, claim)) {
    return refuse("AuthorizationQueryParametersError",
                  "Error parsing the X-Amz parameters of a presigned request.");
  }
  if (claim.payload_hash.empty()) claim.payload_hash = kUnsignedPayload;
  return {};
}

Verdict check_time(const Claim& claim, WallTime now, std::chrono::seconds max_skew) {
  const auto signed_at = http::parse_amz_date(claim.amz_date);
  if (!signed_at)
    return refuse("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header");
  if (!std::string_view(claim.amz_date).starts_with(claim.date)) {
    return refuse("SignatureDoesNotMatch",
                  "The date of the credential scope is not that of x-amz-date.");
  }
  if (claim.is_presigned) {
    if (*signed_at > now + max_skew) return refuse("AccessDenied", "Request is not valid yet");
    if (now > *signed_at + std::chrono::seconds(claim.lifetime_s))
      return refuse("AccessDenied", "Request has expired");
    return {};
  }
  const auto skew = now > *signed_at ? now - *signed_at : *signed_at - now;
  if (skew > max_skew) {
    return refuse("RequestTimeTooSkewed",
                  "The difference between the request time and the current time is too large.");
  }
  return {};
}

/// The signature must cover the host and every x-amz-* field (S3's rule).
Verdict check_signed_names(const http::RequestHead& request, std::string_view signed_names) {
  const auto is_signed = [&](std::string_view name) {
    for (std::string_view rest = signed_names; !rest.empty();) {
      const std::size_t end = rest.find(';');
      if (http::equals_ignoring_case(rest.substr(0, end), name)) return true;
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    return false;
  };
  std::size_t count = 1;
  for (char c : signed_names) count += c == ';' ? 1 : 0;
  if (count > kMaxSignedNames || !is_signed("host")) {
    return refuse("AuthorizationHeaderMalformed",
                  "SignedHeaders must name host, and at most 96 headers.");
  }
  http::Field field;
  for (std::string_view rest = request.fields; http::next_field(rest, field);) {
    const bool is_amz =
        field.name.size() > 6 && http::equals_ignoring_case(field.name.substr(0, 6), "x-amz-");
    if (is_amz && !is_signed(field.name)) {
      return refuse("AccessDenied",
                    "There were headers present in the request which were not signed");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<SigV4Verifier>> SigV4Verifier::create(VerifyOptions options) {
  HEADRACE_TRY_ASSIGN(auto pool, detail::ScratchPool::create());
  return std::unique_ptr<SigV4Verifier>(new SigV4Verifier(std::move(options), std::move(pool)));
}

SigV4Verifier::SigV4Verifier(VerifyOptions options, std::unique_ptr<detail::ScratchPool> pool)
    : options_(std::move(options)), pool_(std::move(pool)) {}

SigV4Verifier::~SigV4Verifier() = default;

Verdict SigV4Verifier::verify(const http::RequestHead& request, WallTime now) {
  Claim claim;
  if (Verdict v = read_claim(request, claim); !v.ok()) return v;
  const Credentials* credentials = nullptr;
  for (const Credentials& candidate : options_.accepted) {
    if (candidate.access_key_id == claim.access_key_id) credentials = &candidate;
  }
  if (credentials == nullptr) {
    return refuse("InvalidAccessKeyId",
                  "The AWS Access Key Id you provided does not exist in our records.");
  }
  if (claim.service != options_.service ||
      (!options_.region.empty() && claim.region != options_.region)) {
    return refuse("AuthorizationHeaderMalformed",
                  "The authorization header is malformed; the region '" + claim.region +
                      "' is wrong; expecting '" + options_.region + "'");
  }
  if (claim.session_token != credentials->session_token) {
    return refuse("InvalidToken", "The provided token is malformed or otherwise invalid.");
  }
  if (Verdict v = check_time(claim, now, options_.max_skew); !v.ok()) return v;
  if (Verdict v = check_signed_names(request, claim.signed_names); !v.ok()) return v;

  // Clients may escape more or less on the wire than in what they sign: both sides go through the
  // one canonical form.
  const auto path = http::decode(request.path);
  const auto query = canonical_query(request.query, "X-Amz-Signature");
  if (!path || !query) return refuse("InvalidURI", "Couldn't parse the specified URI.");
  const std::string canonical_path = http::encode(*path, http::Slash::kKeep);
  std::string storage;
  const auto fields = canonical_fields(request.fields, claim.signed_names, storage);
  const CanonicalRequest canonical{request.method, canonical_path, *query, fields,
                                   claim.payload_hash};
  std::string expected;
  {
    const detail::Lease scratch(*pool_);
    const detail::Scope scope{claim.date, claim.region, claim.service};
    detail::append_hex(
        scratch->sign(canonical, credentials->secret_access_key, claim.amz_date, scope), expected);
  }
  if (CRYPTO_memcmp(expected.data(), claim.signature.data(), expected.size()) != 0) {
    return refuse("SignatureDoesNotMatch",
                  "The request signature we calculated does not match the signature you provided. "
                  "Check your key and "
                  "signing method.");
  }
  Verdict good;
  good.payload_hash = std::move(claim.payload_hash);
  return good;
}

}  // namespace headrace::auth
