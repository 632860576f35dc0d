// The hub tells a stranger of a private repository the same as of one that does not exist: 401
// without a token, 404 with one.
#include "store/hf/hf_errors.h"

namespace headrace::hf {
namespace {

constexpr std::string_view kLogin =
    "set HF_TOKEN to a token that may read it (or log in with: hf auth login)";

constexpr vendor::ErrorRow kTable[] = {
    {"GatedRepo", 403, Code::kDenied, "the repository is gated: accept its conditions on its page"},
    {"DisabledRepo", 403, Code::kDenied, "the hub has disabled this repository"},
    {"RepoNotFound", 404, Code::kNotFound, "no such repository, or it is private"},
    {"RevisionNotFound", 404, Code::kNotFound, "no such branch, tag or commit"},
    {"EntryNotFound", 404, Code::kNotFound, "no such file in this revision"},
    {"", 400, Code::kInvalidArgument, "the hub does not understand the request"},
    {"", 401, Code::kDenied, ""},
    {"", 403, Code::kDenied, "the hub does not allow this"},
    {"", 404, Code::kNotFound, "no such object"},
    {"", 408, Code::kUnavailable, ""},
    {"", 410, Code::kNotFound, "the object is gone"},
    {"", 416, Code::kCorrupt, "the range starts past the end of the object"},
    {"", 429, Code::kThrottled, "the hub asks for a lower rate; with a token it allows more"},
    {"", 451, Code::kDenied, "the hub may not show this"},
    {"", 501, Code::kUnsupported, "the hub does not offer this operation"},
    {"", 503, Code::kThrottled, "the hub asks for a lower rate"},
};

std::string advice_of(const HfConfig& config, const vendor::ErrorRow& row, int http_status) {
  std::string advice(row.advice);
  if (http_status == 401 || row.code == Code::kDenied || row.vendor_code == "RepoNotFound") {
    if (!advice.empty()) advice += "; ";
    if (row.vendor_code == "GatedRepo") advice += config.page_url + " and ";
    advice += config.token.empty() ? "no token is used: " + std::string(kLogin)
                                   : "the token is from " + config.token_source + ": may it read " +
                                         config.page_url + ", and has it expired?";
  }
  return advice.empty() ? "the hub has a problem" : advice;
}

}  // namespace

std::span<const vendor::ErrorRow> error_table() noexcept { return kTable; }

Status hub_error(const HfConfig& config, std::string_view what, int http_status,
                 std::string_view error_code, std::string_view words) {
  vendor::ErrorRow row = vendor::find_error(kTable, error_code, http_status)
                             .value_or(vendor::ErrorRow{
                                 {}, http_status, Code::kCorrupt, "not an answer to this request"});
  // Whatever it is about: who asks is not known, so what is there is not either.
  if (http_status == 401) row.code = Code::kDenied;
  std::string message(what);
  message += ": " + advice_of(config, row, http_status);
  if (!words.empty()) message += "; the hub says: " + vendor::printable(words, 300);
  message += " (HTTP " + std::to_string(http_status);
  if (!error_code.empty()) message += " " + vendor::printable(error_code, 40);
  return Status(row.code, message + ")");
}

Status storage_error(std::string_view what, std::string_view host, int http_status) {
  const std::string start = std::string(what) + ": " + std::string(host);
  const std::string end = " (HTTP " + std::to_string(http_status) + ")";
  switch (http_status) {
    case 400:
    case 401:
    case 403:
    case 410:
      return Status(Code::kUnavailable,
                    start + " refuses the hub's link, which may have expired" + end);
    case 404:
      return Status(Code::kNotFound, start + " does not have the object" + end);
    case 416:
      return Status(Code::kCorrupt, start + ": the range starts past the end of the object" + end);
    case 429:
    case 503:
      return Status(Code::kThrottled, start + " asks for a lower request rate" + end);
    default:
      break;
  }
  const Code code = http_status >= 500   ? Code::kUnavailable
                    : http_status >= 400 ? Code::kInvalidArgument
                                         : Code::kCorrupt;
  return Status(code, start + " has a problem" + end);
}

}  // namespace headrace::hf
