// Where bytes come from: the hub answers a read with a redirect to a signed link of its storage, of
// small files also with the bytes. The redirect names the version (X-Linked-ETag); the storage's
// own ETag is something else and says nothing.
//
// All paths have the commit, so that no version needs to be named: what is there never changes. A
// version that is asked for (of an index that was made of another commit) is compared all the same.
#include "store/hf/hf_protocol.h"

#include "http/range.h"
#include "http/uri.h"
#include "store/hf/hf_errors.h"

namespace headrace::hf {
namespace {

void append_field(std::string_view name, std::string_view value, std::string& out) {
  out.append(name).append(": ").append(value).append("\r\n");
}

/// A weak ETag is of bytes that were packed on their way; they are not packed here.
std::string_view strong(std::string_view etag) noexcept {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  return etag;
}

void append_query(const HttpCall& call, std::string& out) {
  char mark = '?';
  for (const auto& [name, value] : call.query) {
    out.push_back(std::exchange(mark, '&'));
    http::append_encoded(name, http::Slash::kEscape, out);
    out.push_back('=');
    http::append_encoded(value, http::Slash::kEscape, out);
  }
}

}  // namespace

Status no_versions() {
  return Status(Code::kUnsupported,
                "files of the hub have no versions of their own; name the revision in the URL, "
                "behind @");
}

std::string_view version_in(const http::ResponseHead& head) noexcept {
  if (const std::string_view linked = head.header("x-linked-etag"); !linked.empty())
    return strong(linked);
  return head.header("x-repo-commit").empty() ? std::string_view() : strong(head.etag);
}

HfProtocol::HfProtocol(HfConfig config, std::shared_ptr<auth::WebClient> web, const Clock& clock)
    : ConfiguredProtocol(std::move(config)), links_(clock), revision_(config_, std::move(web)) {}

bool HfProtocol::is_hub(const HttpRedirect& redirect) const {
  return redirect.host_field == config_.host_field &&
         redirect.endpoint.use_tls == config_.endpoint.use_tls;
}

void HfProtocol::append_fields(const HeadContext& context, std::string& out) const {
  const HttpRedirect* const redirect = context.redirect;
  append_field("host", redirect != nullptr ? redirect->host_field : config_.host_field, out);
  append_field("accept-encoding", "identity", out);
  const bool may_know =
      redirect == nullptr || is_hub(*redirect) || config_.trusted.is_named(redirect->endpoint);
  if (!config_.token.empty() && may_know)
    append_field("authorization", "Bearer " + config_.token, out);
}

Status HfProtocol::append_head(const Request& request, const HeadContext& context,
                               std::string& out) {
  if (request.op != Op::kGet)
    return Status(Code::kUnsupported, "repositories of the Hugging Face hub can only be read");
  HEADRACE_TRY(check_hf_key(request.key));
  if (!request.version_id.empty()) return no_versions();
  out.append("GET ");
  if (context.redirect != nullptr) {
    out.append(context.redirect->target);
  } else {
    HEADRACE_TRY_ASSIGN(const auto commit, revision_.current(context.wall_now));
    out.append(config_.file_path).append("/").append(commit->sha).append("/");
    http::append_encoded(config_.prefix, http::Slash::kKeep, out);
    http::append_encoded(request.key, http::Slash::kKeep, out);
  }
  out.append(" HTTP/1.1\r\n");
  append_fields(context, out);
  out.append("range: ");
  http::append_range(request.offset_bytes, request.length_bytes, out);
  out.append("\r\n").append(vendor::kUserAgent).append("\r\n");
  return {};
}

Status HfProtocol::append_head(const HttpCall& call, const HeadContext& context, std::string& out) {
  out.append(call.method).push_back(' ');
  if (context.redirect != nullptr) {
    out.append(context.redirect->target);
  } else {
    HEADRACE_TRY_ASSIGN(const auto commit, revision_.current(context.wall_now));
    const std::size_t slash = std::min(call.path.find('/'), call.path.size());
    out.append(config_.api_path).append("/").append(call.path, 0, slash).append("/");
    out.append(commit->sha);
    http::append_encoded(std::string_view(call.path).substr(slash), http::Slash::kKeep, out);
    append_query(call, out);
  }
  out.append(" HTTP/1.1\r\n");
  append_fields(context, out);
  append_field("accept", "application/json", out);
  for (const auto& [name, value] : call.headers) append_field(name, value, out);
  if (!call.body.empty()) append_field("content-length", std::to_string(call.body.size()), out);
  out.append(vendor::kUserAgent).append("\r\n");
  return {};
}

Status HfProtocol::error_from(std::string_view what, const http::ResponseHead& head,
                              std::string_view /*body*/) {
  return hub_error(config_, what, head.status, head.header("x-error-code"),
                   head.header("x-error-message"));
}

std::string_view HfProtocol::version_of(const Request& /*request*/,
                                        const http::ResponseHead& head) const {
  return version_in(head);
}

Status HfProtocol::judge_redirect(const Request& request, const http::ResponseHead& head,
                                  const HttpRedirect& to) {
  const std::string_view version = version_in(head);
  if (!version.empty() && !request.etag.empty() && version != request.etag) {
    return Status(Code::kChanged, "the object is now version " + std::string(version) + ", not " +
                                      std::string(request.etag));
  }
  if (!is_hub(to)) links_.put(request.key, version, to);
  return {};
}

Status HfProtocol::redirected_error(const RedirectedRequest& request,
                                    const http::ResponseHead& head, std::string_view body) {
  if (is_hub(request.redirect)) return error_from(request.what, head, body);
  if (request.transfer != nullptr) links_.drop(request.transfer->key, request.redirect);
  return storage_error(request.what, request.redirect.host_field, head.status);
}

std::unique_ptr<HttpRedirect> HfProtocol::known_redirect(const Request& request) {
  return links_.find(request.key, request.etag);
}

}  // namespace headrace::hf
