// Whether an answer is what was asked for, by its head alone: before its body goes anywhere. The
// order of the checks matters:
// - 416 first: it speaks of the object's length only. With allow_short it is the object's end.
// - The version before the range: the range of another version proves nothing.
// - Then the range, and at last the length of the body, which has to be the range's exactly: the
//   body goes straight into the slab.
//
// What a sound server cannot send is kCorrupt; the engine asks for it again (docs/design/0032).
#include "store/transfer/verdict.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace headrace::transfer {
namespace {

std::string range_text(std::uint64_t first, std::uint64_t end) {
  return "[" + std::to_string(first) + ", " + std::to_string(end) + ")";
}

Verdict corrupt(std::string message) {
  return {BodyUse::kNone, Status(Code::kCorrupt, std::move(message)), 0, 0};
}

Verdict body_of(const http::ResponseHead& head, std::uint64_t length_bytes,
                std::uint64_t object_size_bytes) {
  Verdict verdict{BodyUse::kSlab, {}, length_bytes, object_size_bytes};
  if (head.is_chunked) {
    verdict.use = BodyUse::kText;
  } else if (!head.content_length) {
    return corrupt("the answer does not say how long its body is");
  } else if (*head.content_length != length_bytes) {
    return corrupt("the answer has " + std::to_string(*head.content_length) +
                   " bytes where its range has " + std::to_string(length_bytes));
  } else if (length_bytes == 0) {
    verdict.use = BodyUse::kNone;
  }
  return verdict;
}

Verdict judge_partial(const Request& request, const http::ResponseHead& head) {
  if (!head.content_range) return corrupt("partial answer without a Content-Range");
  const auto& range = *head.content_range;
  const std::uint64_t asked_end = request.offset_bytes + request.length_bytes;
  const std::uint64_t got_end = range.last + 1;
  if (range.first != request.offset_bytes || got_end > asked_end || got_end <= range.first) {
    return corrupt("the answer is for " + range_text(range.first, got_end));
  }
  if (got_end < asked_end) {
    if (!range.total || *range.total != got_end) {
      return corrupt("the answer stops at " + std::to_string(got_end) + " inside the object");
    }
    if (!request.allow_short) return corrupt("the object ends at " + std::to_string(got_end));
  }
  return body_of(head, got_end - range.first, range.total.value_or(0));
}

Verdict judge_whole(const Request& request, const http::ResponseHead& head) {
  if (!head.content_length && !head.is_chunked)
    return corrupt("the answer does not say how long its body is");
  if (request.offset_bytes != 0)
    return {BodyUse::kNone, Status(Code::kUnsupported, "the server ignores ranges"), 0, 0};
  // A chunked whole object shows its size only at its end; more than asked for is found there.
  const std::uint64_t size_bytes = head.is_chunked ? request.length_bytes : *head.content_length;
  if (size_bytes > request.length_bytes) {
    return {BodyUse::kNone, Status(Code::kUnsupported, "the server ignores ranges"), 0, 0};
  }
  if (size_bytes < request.length_bytes && !request.allow_short) {
    return corrupt("the object ends at " + std::to_string(size_bytes));
  }
  return body_of(head, size_bytes, head.is_chunked ? 0 : size_bytes);
}

Verdict changed(const Request& request, const http::ResponseHead& head) {
  return {BodyUse::kNone,
          Status(Code::kChanged, "the object is now version " + std::string(head.etag) + ", not " +
                                     std::string(request.etag)),
          0, 0};
}

bool is_other_version(const Request& request, const http::ResponseHead& head) noexcept {
  return !request.etag.empty() && !head.etag.empty() && head.etag != request.etag;
}

Verdict judge_head(const Request& request, const http::ResponseHead& head) {
  if (head.status != 200) return {BodyUse::kError, {}, 0, 0};
  if (is_other_version(request, head)) return changed(request, head);
  return {BodyUse::kNone, {}, 0, head.content_length.value_or(0)};
}

Verdict judge_get(const Request& request, const http::ResponseHead& head) {
  if (head.status == 416) {
    const auto total = unsatisfied_total(head.header("content-range"));
    // "No such range" about a range that begins inside of the object: read as an error like any
    // other.
    if (total && *total > request.offset_bytes) return {BodyUse::kError, {}, 0, 0};
    if (!request.allow_short) {
      return corrupt(total ? "the object ends at " + std::to_string(*total)
                           : "the range starts past the end of the object");
    }
    return {BodyUse::kNone, {}, 0, total.value_or(0)};
  }
  if (head.status != 200 && head.status != 206) return {BodyUse::kError, {}, 0, 0};
  if (is_other_version(request, head)) return changed(request, head);
  return head.status == 206 ? judge_partial(request, head) : judge_whole(request, head);
}

}  // namespace

Verdict judge_transfer(const Request& request, const http::ResponseHead& head) {
  if (request.op == Op::kGet) return judge_get(request, head);
  if (request.op == Op::kHead) return judge_head(request, head);
  if (head.status < 200 || head.status >= 300) return {BodyUse::kError, {}, 0, 0};
  return {BodyUse::kAnswer, {}, 0, 0};
}

Verdict judge_call(const http::ResponseHead& head, bool is_head_request) {
  // Of an empty object there is no range, and the answer to the question for one says so.
  const bool is_empty = head.status == 416 && unsatisfied_total(head.header("content-range")) == 0;
  const bool is_success = (head.status >= 200 && head.status < 300) || is_empty;
  const bool has_no_body = is_head_request || head.status == 204 || head.status == 304;
  Verdict verdict{is_success ? BodyUse::kAnswer : BodyUse::kError, {}, 0, 0};
  if (has_no_body && is_success) verdict.use = BodyUse::kNone;
  return verdict;
}

bool is_doubtful_error(int http_status, Code code) noexcept {
  // 304 answers a condition that no request here has; other 3xx are of no use without a Location.
  return code == Code::kCorrupt || http_status == 304 ||
         (http_status >= 300 && http_status < 400 && code == Code::kUnsupported);
}

std::optional<std::uint64_t> unsatisfied_total(std::string_view content_range) noexcept {
  constexpr std::string_view kPrefix = "bytes */";
  if (content_range.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  content_range.remove_prefix(kPrefix.size());
  std::uint64_t total = 0;
  const auto [end, error] =
      std::from_chars(content_range.data(), content_range.data() + content_range.size(), total);
  if (error != std::errc() || end != content_range.data() + content_range.size())
    return std::nullopt;
  return total;
}

namespace {

std::optional<std::uint32_t> seconds_of(std::string_view text) noexcept {
  std::uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return seconds;
}

/// `"api";r=0;t=55`: nothing remains for 55 s (draft-ietf-httpapi-ratelimit-headers).
std::optional<std::uint32_t> until_reset(std::string_view rate_limit) noexcept {
  std::optional<std::uint32_t> longest;
  while (!rate_limit.empty()) {
    std::string_view item = rate_limit.substr(0, rate_limit.find(','));
    rate_limit.remove_prefix(std::min(item.size() + 1, rate_limit.size()));
    if (item.find(";r=0;") == std::string_view::npos) continue;
    item.remove_prefix(std::min(item.find(";t="), item.size() - 3) + 3);
    const auto seconds = seconds_of(item.substr(0, item.find(';')));
    if (seconds) longest = std::max(longest.value_or(0), *seconds);
  }
  return longest;
}

}  // namespace

std::optional<std::chrono::milliseconds> retry_after(const http::ResponseHead& head) noexcept {
  auto seconds = seconds_of(head.header("retry-after"));
  if (!seconds) seconds = until_reset(head.header("ratelimit"));
  if (!seconds) return std::nullopt;
  return std::chrono::milliseconds(std::int64_t{1000} * std::min<std::uint32_t>(*seconds, 3600));
}

}  // namespace headrace::transfer
