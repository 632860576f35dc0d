#pragma once
/// \file
/// What the protocols of all vendors do alike: they are made of settings, which say where to
/// connect, and name transfers by URLs below a root.
///
/// Place: below s3/, gcs/, azure/ and web/. No I/O.
///
/// Threads: any; immutable.
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "store/http_protocol.h"

namespace headrace::vendor {

/// A line of every request head.
inline constexpr std::string_view kUserAgent = "user-agent: headrace/0.1\r\n";

inline std::string_view method_of(Op op) noexcept {
  if (op == Op::kHead) return "HEAD";
  return op == Op::kGet ? "GET" : "PUT";
}

/// Start of every message about a transfer: "GET s3://bucket/key [0, 8388608)".
std::string describe_transfer(const Request& request, std::string_view root_url);

/// kInvalidArgument for what no presigned URL can do: other than reading, or writing a whole
/// object; writing a version; a lifetime below a second or above `longest`.
Status check_presign(const PresignRequest& request, std::chrono::seconds longest);

/// What S3 and Google allow at most.
inline constexpr std::chrono::seconds kLongestPresigned{std::chrono::hours(7 * 24)};

/// `Config` has `endpoint` and `root_url`, and where keys stand below a prefix, `prefix`.
template <typename Config>
class ConfiguredProtocol : public HttpProtocol {
 public:
  explicit ConfiguredProtocol(Config config) : config_(std::move(config)) {}

  const HttpEndpoint& endpoint() const noexcept final { return config_.endpoint; }
  std::string describe(const Request& request) const final {
    return describe_transfer(request, config_.root_url);
  }

  const Config& config() const noexcept { return config_; }
  /// The store's own key of one that is relative to the root.
  std::string full_key(std::string_view key) const { return config_.prefix + std::string(key); }

 protected:
  const Config config_;
};

/// A call for one object, of which `url` is the full name. Errors: what the protocol says of the
/// key.
template <typename Protocol>
Result<HttpCall> object_call(const Protocol& protocol, const char* method, const std::string& key,
                             const std::string& url) {
  HttpCall http;
  http.method = method;
  http.what = std::string(method) + " " + url;
  if (Status s = protocol.check_key(key); !s.ok()) return std::move(s).annotate(http.what);
  http.path = protocol.full_key(key);
  return http;
}

}  // namespace headrace::vendor
