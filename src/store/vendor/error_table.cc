#include "store/vendor/error_table.h"

#include <algorithm>

namespace headrace::vendor {
std::optional<ErrorRow> find_error(std::span<const ErrorRow> table, std::string_view vendor_code,
                                   int http_status) noexcept {
  const auto by_code = std::find_if(table.begin(), table.end(), [&](const ErrorRow& row) {
    return !row.vendor_code.empty() && row.vendor_code == vendor_code;
  });
  if (by_code != table.end()) return *by_code;
  const auto by_status = std::find_if(table.begin(), table.end(), [&](const ErrorRow& row) {
    return row.vendor_code.empty() && row.http_status == http_status;
  });
  if (by_status != table.end()) return *by_status;
  const auto any = [&](Code code, std::string_view advice) {
    return ErrorRow{{}, http_status, code, advice};
  };
  if (http_status >= 500) return any(Code::kUnavailable, {});
  if (http_status >= 400) return any(Code::kInvalidArgument, {});
  if (http_status >= 300)
    return any(Code::kUnsupported, "an unexpected redirect; check the endpoint");
  return std::nullopt;
}

Status without_missing(Status answer, std::string_view bucket_missing) {
  const std::string_view message = answer.message();
  // Only the store's own answer: an unknown host is kNotFound as well.
  const bool is_answer = message.find("(HTTP 404") != std::string_view::npos;
  const bool is_bucket =
      !bucket_missing.empty() && message.find(bucket_missing) != std::string_view::npos;
  if (answer.code() == Code::kNotFound && is_answer && !is_bucket) return {};
  return answer;
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (const char c : text.substr(0, max_bytes))
    out.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c);
  return out;
}

}  // namespace headrace::vendor
