#pragma once
/// \file
/// HttpProtocol: all that the transfer engine needs to know of a vendor (S3, later GCS, Azure,
/// plain HTTP). The engine moves bytes, times out, retries; the protocol says which bytes to send
/// and what an answer means. No I/O here.
///
/// Threads: every function from any reactor thread at once; implementations are immutable or lock
/// inside.
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "headrace/status.h"
#include "headrace/store.h"
#include "http/response.h"

namespace headrace {

/// Where the engine connects.
struct HttpEndpoint {
  std::string host;  ///< Name or address to resolve.
  std::uint16_t port = 80;
  bool use_tls = false;
};

/// Where a 301, 302, 303, 307 or 308 answer sends a request: signed and sent anew to there.
/// AIStore's gateways send each request to the node that has the object; web servers to a CDN.
struct HttpRedirect {
  HttpEndpoint endpoint;
  std::string host_field;  ///< For the Host field: host[:port].
  std::string target;      ///< Path and query as the Location gave them, escaped; starts with '/'.
};

/// What an answer belongs to that came from where a redirect led.
struct RedirectedRequest {
  std::string_view what;  ///< For messages.
  const HttpRedirect& redirect;
  const Request* transfer = nullptr;  ///< nullptr: a call.
};

/// What a head is built for, besides its request.
struct HeadContext {
  std::chrono::sys_seconds wall_now;
  const HttpRedirect* redirect = nullptr;  ///< nullptr: the protocol's own endpoint and path.
};

/// What a vendor's rules ask of the rate of requests; see the vendor's row in facts/stores.md F.
struct EndpointRules {
  /// Requests/s to start with, 0: no such rule; the allowed rate doubles every `doubling`.
  double initial_reads_per_second = 0;
  double initial_writes_per_second = 0;
  std::chrono::seconds doubling{1200};
};

/// A control-plane exchange: small body out, bounded body in. `target` is not signed yet.
struct HttpCall {
  std::string method = "GET";
  std::string path;  ///< Raw key path below the bucket, not escaped; may be empty.
  std::vector<std::pair<std::string, std::string>>
      query;  ///< Not escaped; an empty value is sent as "name=".
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string what;               ///< For messages: "LIST s3://bucket/prefix".
  bool is_idempotent = true;      ///< May be retried after bytes were sent.
  bool fresh_connection = false;  ///< As Request::fresh_connection.
  /// How long the answer may take to its head, and pause after it; zero: as StoreOptions say.
  std::chrono::milliseconds answer_timeout{0};
};

struct HttpAnswer {
  int status = 0;
  std::string head;  ///< Raw head; parse_response_head() on it gives the fields.
  std::string body;  ///< At most 16 MiB.
};

class HttpProtocol {
 public:
  virtual ~HttpProtocol() = default;
  virtual const HttpEndpoint& endpoint() const noexcept = 0;

  /// Appends the complete signed head (request line to blank line) of a transfer. `out` keeps its
  /// capacity between uses, so this allocates nothing at steady state. For kPut and kPutPart the
  /// body is request.slab[slab_offset, +length), sent by the engine. Errors: kInvalidArgument
  /// (key), kDenied (credentials expired and no way to renew), kUnavailable (credentials are being
  /// fetched in the background: the engine asks again in a few milliseconds, until the deadline,
  /// and does not count it as an attempt).
  virtual Status append_head(const Request& request, const HeadContext& context,
                             std::string& out) = 0;
  virtual Status append_head(const HttpCall& call, const HeadContext& context,
                             std::string& out) = 0;

  /// What a head that is *not* a plain success means, given up to 64 KiB of its body ("" before it
  /// is read). Every status, error code and errno-like case has a row in one table with a test
  /// each. Retryable codes are kUnavailable and kThrottled; the message has no "attempt" and time
  /// (the engine adds them). Credentials that the store calls expired are reported to their
  /// provider here; when it can renew them the code is kUnavailable and the engine tries again.
  virtual Status error_from(std::string_view what, const http::ResponseHead& head,
                            std::string_view body) = 0;

  /// Some calls answer 200 with an error inside (CompleteMultipartUpload, CopyObject): checks a
  /// finished answer. Default: a success is one.
  virtual Status check_answer(const HttpCall& /*call*/, const HttpAnswer& /*answer*/) { return {}; }

  /// Looks at a successful answer to a kGet before its body goes anywhere. An error is the outcome
  /// of the attempt. Default: none.
  virtual Status judge_bytes(const http::ResponseHead& /*head*/) const { return {}; }

  /// The checksum that a successful answer to a kGet announces for its body (not for a larger
  /// object); the engine compares. Default: none.
  virtual Checksum checksum_of(const Request& /*request*/,
                               const http::ResponseHead& /*head*/) const {
    return {};
  }
  /// Whether append_head() takes kHead. Constant. Default: not.
  virtual bool takes_heads() const noexcept { return false; }
  /// The sum of the whole object that a successful answer to a kHead or kGet tells. Default: none.
  virtual Checksum object_checksum_of(const Request& /*request*/,
                                      const http::ResponseHead& /*head*/) const {
    return {};
  }
  /// What a successful answer to a kHead or kGet tells of the object. Default: nothing.
  virtual std::shared_ptr<const ObjectDetails> details_of(
      const http::ResponseHead& /*head*/) const {
    return nullptr;
  }
  /// The version that the head of an answer names: the engine compares it with Request::etag and
  /// reports it in Completion::etag. A view into the head. Default: its ETag.
  virtual std::string_view version_of(const Request& /*request*/,
                                      const http::ResponseHead& head) const {
    return head.etag;
  }
  /// Whether versions are ETags, which some servers send without their quotes. Constant. Default:
  /// not.
  virtual bool quotes_versions() const noexcept { return false; }
  /// After a successful kPut or kPutPart: the value of Completion::etag, where the version is in
  /// the body of the answer. `head.etag` is version_of() by now, and the default.
  virtual void append_version(const Request& /*request*/, const http::ResponseHead& head,
                              std::string_view /*body*/, std::string& out) const {
    out.append(head.etag);
  }
  /// Whether every answer that says that this kPut or kPutPart has succeeded names a version: one
  /// without is not the store's. Default: not.
  virtual bool names_what_it_wrote(const Request& /*request*/) const noexcept { return false; }
  /// The field, in lower case, by which an upload tells the checksum of its bytes, and the answer
  /// that of what was written: where both have it the engine compares. Default: none.
  virtual std::string_view checksum_field() const noexcept { return {}; }
  /// After a successful kPut or kPutPart: the value of Completion::checksum. Default: none.
  virtual void append_checksum(const Request& /*request*/, const http::ResponseHead& /*head*/,
                               std::string& /*out*/) const {}

  /// Whether 301, 302, 303, 307 and 308 answers with a Location are followed: the request is built
  /// anew with HeadContext::redirect, and the protocol decides which credentials the other host
  /// gets. At most 5 hops, never from https to http. Constant. Default: they go to error_from().
  virtual bool follows_redirects() const noexcept { return false; }
  /// Looks at an answer that sends a transfer to `to`, before it goes there. An error is the end of
  /// the attempt. Default: none.
  virtual Status judge_redirect(const Request& /*request*/, const http::ResponseHead& /*head*/,
                                const HttpRedirect& /*to*/) {
    return {};
  }
  /// error_from(), of an answer from where a redirect led. Default: no difference.
  virtual Status redirected_error(const RedirectedRequest& request, const http::ResponseHead& head,
                                  std::string_view body) {
    return error_from(request.what, head, body);
  }
  /// Where a kGet can go at once, without being sent there first. Asked before its first attempt;
  /// the next one goes to the endpoint. Default: nowhere.
  virtual std::unique_ptr<HttpRedirect> known_redirect(const Request& /*request*/) {
    return nullptr;
  }

  /// Constant. Default: no rules.
  virtual EndpointRules rules() const { return {}; }

  /// "GET s3://bucket/key [0, 8388608)": the start of every message about the transfer.
  virtual std::string describe(const Request& request) const = 0;
};

}  // namespace headrace
