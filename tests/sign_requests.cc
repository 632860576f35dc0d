// Signs requests that it reads as JSON lines, for comparison with other signers. In: kind ("header"
// or "query"), method, path (escaped), query (as sent), headers, access_key, secret_key, token,
// region, service, unix_s, lifetime_s, payload. Out: one line each, the Authorization value or the
// presigned query.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "auth/sigv4.h"

namespace {

using headrace::auth::CanonicalRequest;
using headrace::auth::Credentials;
using headrace::auth::SigV4Signer;

std::string sign(const nlohmann::json& in) {
  auto signer = SigV4Signer::create(in["region"], in["service"]);
  if (!signer) return "error: no signer";
  const Credentials credentials{in["access_key"], in["secret_key"], in["token"], std::nullopt};
  const std::chrono::sys_seconds now{std::chrono::seconds(in["unix_s"].get<std::int64_t>())};
  std::vector<std::pair<std::string, std::string>> headers;
  for (const auto& [name, value] : in["headers"].items()) headers.emplace_back(name, value);
  std::sort(headers.begin(), headers.end());
  std::vector<headrace::http::Field> fields;
  for (const auto& [name, value] : headers) fields.push_back({name, value});
  const std::string method = in["method"];
  const std::string sent_path = in["path"];
  const std::string path =
      headrace::auth::canonical_path(sent_path, headrace::auth::PathRules::kS3);
  const std::string sent_query = in["query"];
  auto query = headrace::auth::canonical_query(sent_query);
  if (!query) return "error: " + std::string(query.error().message());
  const std::string payload = in["payload"];
  const CanonicalRequest request{method, path, *query, fields, payload};
  if (in["kind"] == "query") {
    return (*signer)->presigned_query(request, credentials, now,
                                      std::chrono::seconds(in["lifetime_s"].get<int>()));
  }
  std::string out;
  (*signer)->append_authorization(request, credentials, now, out);
  return out;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << sign(nlohmann::json::parse(line)) << "\n";
  return 0;
}
