#pragma once
/// \file
/// WebProtocol: what a plain web server is asked and what its answers mean, for the transfer
/// engine. Reads only. No I/O. The version of an object is its ETag, weak or strong, else its
/// Last-Modified date.
///
/// Threads: any; immutable.
#include <span>
#include <string>

#include "store/vendor/configured_protocol.h"
#include "store/web/web_config.h"

namespace headrace::web {

/// One row of what a status means.
struct StatusRow {
  int http_status = 0;
  Code code = Code::kInternal;
  std::string_view advice;
};
std::span<const StatusRow> status_table() noexcept;

/// What the head of an answer tells of an object: its type.
std::shared_ptr<const ObjectDetails> details_in(const http::ResponseHead& head);

class WebProtocol final : public vendor::ConfiguredProtocol<WebConfig> {
 public:
  using ConfiguredProtocol::ConfiguredProtocol;

  /// A strong ETag is also sent as If-Match and a date as If-Unmodified-Since; servers that ignore
  /// them and weak ETags are found out by comparing. User and password go to the origin only, and
  /// to StoreOptions::trusted_hosts; a redirect that takes the URL's signature to another host is
  /// kDenied. Errors also: kUnsupported (writes).
  Status append_head(const Request& request, const HeadContext& context, std::string& out) override;
  /// HttpCall::path is the key.
  Status append_head(const HttpCall& call, const HeadContext& context, std::string& out) override;
  Status error_from(std::string_view what, const http::ResponseHead& head,
                    std::string_view body) override;
  /// The type.
  std::shared_ptr<const ObjectDetails> details_of(const http::ResponseHead& head) const override {
    return details_in(head);
  }
  /// kUnsupported: packed on its way (Content-Encoding), so that its offsets are not the object's.
  Status judge_bytes(const http::ResponseHead& head) const override;
  std::string_view version_of(const Request& request,
                              const http::ResponseHead& head) const override;
  bool follows_redirects() const noexcept override { return true; }

 private:
  Status check_redirect(const HttpRedirect* redirect) const;
  void append_start(std::string_view method, std::string_view key, const HeadContext& context,
                    std::string& out) const;
};

/// ETag, else date.
std::string_view version_in(const http::ResponseHead& head) noexcept;
/// kInvalidArgument for an empty key or one with a NUL.
Status check_web_key(std::string_view key);

}  // namespace headrace::web
