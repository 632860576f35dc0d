// What is secret goes to the server that it was meant for and to hosts that the user has named,
// and to nobody that a redirect points to: neither the user and password (append_start()) nor the
// signature in the URL (check_redirect()).
//
// Every read asks for a version: If-Match with a strong ETag, If-Unmodified-Since with a date. A
// weak ETag may not be used in If-Match (RFC 9110, section 13.1.1), so nothing is asked then.
#include "store/web/web_protocol.h"

#include "http/fields.h"
#include "http/range.h"
#include "http/uri.h"

namespace headrace::web {
namespace {

// RFC 9110 section 15; 429 of RFC 6585; 509 and 52x of hosting companies and CDNs fall under >=
// 500.
constexpr StatusRow kTable[] = {
    {304, Code::kChanged, "unexpected answer to a request without If-None-Match"},
    {400, Code::kInvalidArgument, "the server does not understand the request"},
    {401, Code::kDenied, "the server asks for a user; write https://user:password@host/path"},
    {403, Code::kDenied, "the server does not allow this; a signed URL may have expired"},
    {404, Code::kNotFound, "no such object"},
    {405, Code::kUnsupported, "the server does not offer this operation"},
    {407, Code::kDenied, "the proxy asks for a user"},
    {408, Code::kUnavailable, "the server waited too long for the request"},
    {410, Code::kNotFound, "the object is gone"},
    {412, Code::kChanged, "the object is not the version that was expected"},
    {416, Code::kCorrupt, "the range starts past the end of the object"},
    {425, Code::kUnavailable, ""},
    {429, Code::kThrottled, "the server asks for a lower request rate"},
    {451, Code::kDenied, "the server may not show this"},
    {500, Code::kUnavailable, ""},
    {501, Code::kUnsupported, "the server does not offer this operation"},
    {502, Code::kUnavailable, ""},
    {503, Code::kThrottled, "the server asks for a lower request rate"},
    {504, Code::kUnavailable, ""},
};

StatusRow row_for(int status) noexcept {
  for (const StatusRow& row : kTable) {
    if (row.http_status == status) return row;
  }
  if (status >= 500) return {status, Code::kUnavailable, ""};
  if (status >= 400) return {status, Code::kInvalidArgument, ""};
  if (status >= 300) return {status, Code::kUnsupported, "a redirect that leads nowhere"};
  return {status, Code::kCorrupt, "not an answer to this request"};
}

void append_field(std::string_view name, std::string_view value, std::string& out) {
  out.append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

std::span<const StatusRow> status_table() noexcept { return kTable; }

std::string_view version_in(const http::ResponseHead& head) noexcept {
  return head.etag.empty() ? head.header("last-modified") : head.etag;
}

Status check_web_key(std::string_view key) {
  if (key.empty()) return Status(Code::kInvalidArgument, "the key is empty");
  if (key.find('\0') != std::string_view::npos)
    return Status(Code::kInvalidArgument, "the key has a NUL character");
  return {};
}

void WebProtocol::append_start(std::string_view method, std::string_view key,
                               const HeadContext& context, std::string& out) const {
  out.append(method).push_back(' ');
  if (context.redirect != nullptr) {
    out.append(context.redirect->target);
  } else {
    out.append(config_.base_path).push_back('/');
    http::append_encoded(key, http::Slash::kKeep, out);
    if (!config_.query.empty()) out.append("?").append(config_.query);
  }
  out.append(" HTTP/1.1\r\n");
  append_field(
      "host", context.redirect != nullptr ? context.redirect->host_field : config_.host_field, out);
  // Packed bytes have other ranges than the ones that are asked for.
  append_field("accept-encoding", "identity", out);
  const bool is_origin = context.redirect == nullptr ||
                         (context.redirect->host_field == config_.host_field &&
                          context.redirect->endpoint.use_tls == config_.endpoint.use_tls) ||
                         config_.trusted.is_named(context.redirect->endpoint);
  if (!config_.authorization.empty() && is_origin)
    append_field("authorization", config_.authorization, out);
}

/// A server that redirects may have put the query of our own URL behind the new one: its signature
/// is for this server.
Status WebProtocol::check_redirect(const HttpRedirect* redirect) const {
  if (redirect == nullptr || config_.trusted.is_own(redirect->endpoint.host) ||
      config_.trusted.is_named(redirect->endpoint))
    return {};
  for (const std::string& secret : config_.signatures) {
    if (redirect->target.find(secret) == std::string::npos) continue;
    return Status(Code::kDenied,
                  "redirected to " + redirect->host_field +
                      " with the signature of this URL, which is not sent there (the option "
                      "trusted_hosts allows it)");
  }
  return {};
}

Status WebProtocol::append_head(const Request& request, const HeadContext& context,
                                std::string& out) {
  HEADRACE_TRY(check_web_key(request.key));
  if (request.op != Op::kGet)
    return Status(Code::kUnsupported, "plain web servers can only be read");
  if (!request.version_id.empty())
    return Status(Code::kUnsupported, "plain web servers have no versions of objects");
  for (char c : request.etag) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return Status(Code::kInvalidArgument, "the version has a control character");
  }
  HEADRACE_TRY(check_redirect(context.redirect));
  append_start("GET", request.key, context, out);
  out.append("range: ");
  http::append_range(request.offset_bytes, request.length_bytes, out);
  out.append("\r\n");
  if (request.etag.starts_with('"')) {
    append_field("if-match", request.etag, out);
  } else if (!request.etag.empty() && !request.etag.starts_with("W/")) {
    append_field("if-unmodified-since", request.etag, out);
  }
  out.append(vendor::kUserAgent).append("\r\n");
  return {};
}

Status WebProtocol::append_head(const HttpCall& call, const HeadContext& context,
                                std::string& out) {
  HEADRACE_TRY(check_redirect(context.redirect));
  append_start(call.method, call.path, context, out);
  for (const auto& [name, value] : call.headers) append_field(name, value, out);
  out.append(vendor::kUserAgent).append("\r\n");
  return {};
}

Status WebProtocol::error_from(std::string_view what, const http::ResponseHead& head,
                               std::string_view /*body*/) {
  const StatusRow row = row_for(head.status);
  std::string message(what);
  message += ": ";
  message += row.advice.empty() ? "the server has a problem" : std::string(row.advice);
  return Status(row.code, message + " (HTTP " + std::to_string(head.status) + ")");
}

std::shared_ptr<const ObjectDetails> details_in(const http::ResponseHead& head) {
  auto details = std::make_shared<ObjectDetails>();
  details->settings.content_type = head.header("content-type");
  return details;
}

Status WebProtocol::judge_bytes(const http::ResponseHead& head) const {
  const std::string_view encoding = head.header("content-encoding");
  if (encoding.empty() || http::equals_ignoring_case(encoding, "identity")) return {};
  return Status(Code::kUnsupported,
                "the server packs its answers (Content-Encoding), so that ranges have no meaning");
}

std::string_view WebProtocol::version_of(const Request& /*request*/,
                                         const http::ResponseHead& head) const {
  return version_in(head);
}

}  // namespace headrace::web
