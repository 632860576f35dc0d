#include "store/hf/hf_revision.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headrace/log.h"
#include "http/uri.h"
#include "store/hf/hf_errors.h"
#include "store/transfer/redirect.h"

namespace headrace::hf {
namespace {

constexpr std::chrono::milliseconds kTimeout{20'000};

std::string_view header_of(const auth::WebAnswer& answer, std::string_view name) {
  for (const auto& [field, value] : answer.headers) {
    if (field == name) return value;
  }
  return {};
}

/// What a run has read, for who wants to read the same again.
void log_commit(const HfConfig& config, const std::string& sha) {
  if (is_commit(config.revision) || !process_log().wants(LogLevel::kInfo)) return;
  process_log().write(LogLevel::kInfo, "store",
                      config.root_url + ": revision " + config.revision + " is commit " + sha);
}

}  // namespace

HfRevision::HfRevision(const HfConfig& config, std::shared_ptr<auth::WebClient> web)
    : config_(config),
      web_(std::move(web)),
      what_("REVISION " + config.root_url),
      renewing_({.what = what_}, [this](const std::stop_token& stop) { return fetch(stop); }) {}

Result<std::shared_ptr<const Commit>> HfRevision::current(auth::WallTime now) {
  auto commit = renewing_.current(now);
  if (commit || is_retryable(commit.error().code())) return commit;
  MutexLock lock(mutex_);
  // What may pass is asked again until the request's own deadline.
  if (failure_.ok() || is_retryable(failure_.code()))
    return Status(Code::kUnavailable, std::string(commit.error().message()));
  return failure_.clone();
}

Result<Commit> HfRevision::fetch(const std::stop_token& stop) {
  Result<Commit> commit = [&]() -> Result<Commit> {
    HEADRACE_TRY_ASSIGN(const auth::WebAnswer answer, ask(stop));
    if (answer.status != 200) {
      return hub_error(config_, what_, answer.status, header_of(answer, "x-error-code"),
                       header_of(answer, "x-error-message"));
    }
    const auto document = nlohmann::json::parse(answer.body, nullptr, false);
    const auto sha = document.is_object() ? document.find("sha") : document.end();
    if (sha == document.end() || !sha->is_string() || !is_commit(sha->get<std::string>()))
      return Status(Code::kCorrupt, what_ + ": the hub names no commit");
    return Commit{sha->get<std::string>(), std::nullopt};
  }();
  if (commit) log_commit(config_, commit->sha);
  MutexLock lock(mutex_);
  failure_ = commit ? Status() : commit.error().clone();
  return commit;
}

/// Follows the redirects of repositories that were renamed, which stay at the hub.
Result<auth::WebAnswer> HfRevision::ask(const std::stop_token& stop) {
  auth::WebRequest request;
  request.timeout = kTimeout;
  request.headers = {{"accept", "application/json"}};
  if (!config_.token.empty())
    request.headers.emplace_back("authorization", "Bearer " + config_.token);
  const std::string origin =
      (config_.endpoint.use_tls ? "https://" : "http://") + config_.host_field;
  // Else the answer has the names of all files.
  std::string target = config_.api_path + "/revision/" +
                       http::encode(config_.revision, http::Slash::kEscape) + "?expand=sha";
  for (std::uint32_t hops = 0;; ++hops) {
    request.url = origin + target;
    auto answer = web_->fetch(request, stop);
    if (!answer) return std::move(answer).error().annotate(what_);
    const std::string_view location = header_of(*answer, "location");
    if (!transfer::is_redirect(answer->status, "GET") || location.empty()) return answer;
    auto redirect = transfer::parse_redirect(location, config_.endpoint, target);
    if (!redirect) return std::move(redirect).error().annotate(what_);
    if (redirect->host_field != config_.host_field || hops == transfer::kMaxRedirects) {
      return Status(Code::kUnsupported,
                    what_ + ": redirected to " + redirect->host_field + ", which is not followed");
    }
    target = redirect->target;
  }
}

}  // namespace headrace::hf
