#pragma once
/// \file
/// HfProtocol: what the hub is asked and what its answers mean, for the transfer engine. Reads
/// only. The version of a file is the id of its content, quoted: SHA-256 where it lies in large
/// file storage, else git's.
///
/// Threads: any.
#include <memory>
#include <string>

#include "auth/web_client.h"
#include "headrace/clock.h"
#include "store/hf/hf_config.h"
#include "store/hf/hf_links.h"
#include "store/hf/hf_revision.h"
#include "store/vendor/configured_protocol.h"

namespace headrace::hf {

class HfProtocol final : public vendor::ConfiguredProtocol<HfConfig> {
 public:
  /// `clock` outlives it.
  HfProtocol(HfConfig config, std::shared_ptr<auth::WebClient> web, const Clock& clock);

  /// The token goes to the hub and to StoreOptions::trusted_hosts; never to where it redirects.
  Status append_head(const Request& request, const HeadContext& context, std::string& out) override;
  /// HttpCall::path: "tree/FOLDER" or "paths-info", of the commit; the folder is not escaped.
  Status append_head(const HttpCall& call, const HeadContext& context, std::string& out) override;
  Status error_from(std::string_view what, const http::ResponseHead& head,
                    std::string_view body) override;
  std::string_view version_of(const Request& request,
                              const http::ResponseHead& head) const override;

  bool follows_redirects() const noexcept override { return true; }
  /// kChanged when the hub's answer names another version than the one that is read.
  Status judge_redirect(const Request& request, const http::ResponseHead& head,
                        const HttpRedirect& to) override;
  Status redirected_error(const RedirectedRequest& request, const http::ResponseHead& head,
                          std::string_view body) override;
  std::unique_ptr<HttpRedirect> known_redirect(const Request& request) override;

 private:
  bool is_hub(const HttpRedirect& redirect) const;
  void append_fields(const HeadContext& context, std::string& out) const;

  HfLinks links_;
  HfRevision revision_;
};

/// kUnsupported, for who asks for an older version of one file.
Status no_versions();

/// The version that an answer of the hub names; empty: it names none, or is another server's.
std::string_view version_in(const http::ResponseHead& head) noexcept;

}  // namespace headrace::hf
