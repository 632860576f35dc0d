// Sessions live five minutes and are renewed in the background, like other credentials. Two layers
// of credentials are at work: the account's own, which sign CreateSession, and the session's,
// which sign everything else. Either may be refused as expired; a refusal of the own ones is told
// to their provider, and is kUnavailable when new ones are under way, so that the request is tried
// again.
//
// The clock is corrected by what the server says, as for other requests: a signature is good for
// 15 minutes, and machines are off by more.
#include "store/s3/express_session.h"

#include <pugixml.hpp>

#include "auth/renewing.h"
#include "auth/sigv4.h"
#include "http/date.h"
#include "store/s3/s3_errors.h"
#include "store/s3/s3_xml.h"

namespace headrace::s3 {
namespace {

/// One CreateSession after another. Used by one thread at a time.
class SessionMaker {
 public:
  SessionMaker(SessionSource source, std::unique_ptr<auth::SigV4Signer> signer)
      : source_(std::move(source)), signer_(std::move(signer)) {}

  Result<auth::Credentials> make(const std::stop_token& stop) {
    auto session = ask("ReadWrite", stop);
    if (session || session.error().code() != Code::kDenied) return session;
    // The second refusal is dropped: the first one names the right that was wanted.
    auto reading = ask("ReadOnly", stop);
    return reading ? std::move(reading) : std::move(session);
  }

 private:
  Result<auth::Credentials> ask(std::string_view mode, const std::stop_token& stop) {
    const S3Config& config = source_.config;
    const auto now = source_.clock->adjusted(source_.wall_now());
    HEADRACE_TRY_ASSIGN(const auto own, config.credentials->current(now));
    char date[16];
    http::write_amz_date(now, date);
    std::vector<http::Field> fields = {{"host", config.host_field},
                                       {"x-amz-content-sha256", auth::kEmptyPayloadHash},
                                       {"x-amz-create-session-mode", mode},
                                       {"x-amz-date", std::string_view(date, sizeof(date))}};
    if (!own->session_token.empty()) fields.push_back({"x-amz-security-token", own->session_token});
    const std::string path = config.base_path.empty() ? "/" : config.base_path;
    const auth::CanonicalRequest canonical{"GET", path, "session=", fields,
                                           auth::kEmptyPayloadHash};
    auth::WebRequest request;
    request.url = std::string(config.endpoint.use_tls ? "https://" : "http://") +
                  config.host_field + path + "?session=";
    for (const http::Field& field : fields) {
      if (field.name != "host") request.headers.emplace_back(field.name, field.value);
    }
    std::string authorization;
    signer_->append_authorization(canonical, *own, now, authorization);
    request.headers.emplace_back("authorization", std::move(authorization));
    HEADRACE_TRY_ASSIGN(const auth::WebAnswer answer, source_.client->fetch(request, stop));
    if (answer.status != 200) return refusal(answer, *own);
    return parse_session(answer.body);
  }

  Status refusal(const auth::WebAnswer& answer, const auth::Credentials& own) const {
    std::string fields;
    http::ResponseHead head;
    head.status = answer.status;
    for (const auto& [name, value] : answer.headers) fields += name + ": " + value + "\r\n";
    head.fields = fields;
    const S3Config& config = source_.config;
    Status status = error_status("CreateSession " + config.root_url, head, answer.body,
                                 {config.region, config.credentials_source});
    switch (trouble_of(head, answer.body)) {
      case Trouble::kExpiredCredentials:
        if (config.credentials->invalidate(own))
          return Status(Code::kUnavailable, std::string(status.message()));
        break;
      case Trouble::kClock:
        if (source_.clock->learn(http::parse_http_date(head.header("date"))))
          return Status(Code::kUnavailable, std::string(status.message()));
        break;
      case Trouble::kRegion:
      case Trouble::kNone:
        break;
    }
    return status;
  }

  const SessionSource source_;
  const std::unique_ptr<auth::SigV4Signer> signer_;
};

class Sessions final : public auth::CredentialProvider {
 public:
  Sessions(std::shared_ptr<auth::CredentialProvider> own, std::shared_ptr<SessionMaker> maker)
      : own_(std::move(own)),
        sessions_({.what = "S3 Express session"},
                  [maker](std::stop_token stop) { return maker->make(stop); }) {}

  Result<std::shared_ptr<const auth::Credentials>> current(auth::WallTime now) override {
    // First, so that a session is not asked for, and refused, while they are being fetched.
    HEADRACE_TRY_ASSIGN(const auto own, own_->current(now));
    return sessions_.current(now);
  }
  bool invalidate(const auth::Credentials& refused) override {
    return sessions_.invalidate(refused);
  }

 private:
  const std::shared_ptr<auth::CredentialProvider> own_;
  auth::Renewing<auth::Credentials> sessions_;
};

}  // namespace

Result<auth::Credentials> parse_session(std::string_view body) {
  pugi::xml_document document;
  document.load_buffer(body.data(), body.size());
  const pugi::xml_node node = document.child("CreateSessionResult").child("Credentials");
  auth::Credentials session;
  session.access_key_id = node.child_value("AccessKeyId");
  session.secret_access_key = node.child_value("SecretAccessKey");
  session.session_token = node.child_value("SessionToken");
  session.expires = http::parse_iso_date(node.child_value("Expiration"));
  if (session.access_key_id.empty() || session.secret_access_key.empty() ||
      session.session_token.empty() || !session.expires) {
    return Status(Code::kCorrupt,
                  "the store's answer is not a session; check that the endpoint is S3 Express");
  }
  return session;
}

Result<std::shared_ptr<auth::CredentialProvider>> express_sessions(SessionSource source) {
  HEADRACE_TRY_ASSIGN(auto signer, auth::SigV4Signer::create(source.config.region, "s3express"));
  auto own = source.config.credentials;
  auto maker = std::make_shared<SessionMaker>(std::move(source), std::move(signer));
  return std::shared_ptr<auth::CredentialProvider>(
      std::make_shared<Sessions>(std::move(own), std::move(maker)));
}

}  // namespace headrace::s3
