#include "store/azure/azure_batch.h"

#include "base/strings.h"
#include "http/fields.h"

namespace headrace::azure {
namespace {

constexpr std::string_view kBoundary = "--batch_68656164-7261-4365-8000-000000000000";

/// Value of a field in the header lines before the blank line of `part`, name in lower case.
std::string_view part_field(std::string_view part, std::string_view name) {
  while (!part.empty()) {
    const std::size_t end = part.find('\n');
    std::string_view line = part.substr(0, end);
    part.remove_prefix(end == std::string_view::npos ? part.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) break;
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    if (http::equals_ignoring_case(line.substr(0, colon), name))
      return trim(line.substr(colon + 1));
  }
  return {};
}

/// The answer inside of one part: status line and fields. False when there is none.
bool read_part(std::string_view part, BatchResult& out) {
  const std::size_t begin = part.find("HTTP/1.");
  if (begin == std::string_view::npos) return false;
  std::string_view answer = part.substr(begin);
  const std::size_t space = answer.find(' ');
  if (space == std::string_view::npos) return false;
  const auto status = parse_decimal<std::uint16_t>(answer.substr(space + 1, 3));
  const std::size_t line_end = answer.find('\n');
  if (!status || line_end == std::string_view::npos) return false;
  out.http_status = *status;
  out.error_code = part_field(answer.substr(line_end + 1), "x-ms-error-code");
  return true;
}

}  // namespace

void append_batch_part(std::size_t index, std::string_view head, std::string& body) {
  body.append(kBoundary);
  body.append("\r\ncontent-type: application/http\r\ncontent-transfer-encoding: binary\r\n");
  body.append("content-id: ").append(std::to_string(index)).append("\r\n\r\n");
  body.append(head);
}

void finish_batch(std::string& body) { body.append(kBoundary).append("--\r\n"); }

Result<std::vector<BatchResult>> parse_batch(std::string_view body, std::size_t count) {
  const std::size_t first = body.find("--");
  const std::size_t first_end = body.find_first_of("\r\n", first == body.npos ? 0 : first);
  if (first == body.npos || first_end == body.npos || first_end - first < 3)
    return Status(Code::kCorrupt, "the answer to a batch is not multipart/mixed");
  const std::string boundary(body.substr(first, first_end - first));
  std::vector<BatchResult> results(count);
  std::size_t position = 0;  // parts without an id come in order
  body.remove_prefix(first + boundary.size());
  while (!body.empty()) {
    const std::size_t end = body.find(boundary);
    std::string_view part = body.substr(0, end);
    body.remove_prefix(end == body.npos ? body.size() : end + boundary.size());
    while (part.starts_with('\r') || part.starts_with('\n')) part.remove_prefix(1);
    BatchResult result;
    if (!read_part(part, result)) continue;
    const auto id = parse_decimal<std::size_t>(part_field(part, "content-id"));
    const std::size_t index = id.value_or(position);
    if (index >= count)
      return Status(Code::kCorrupt, "the answer to a batch has a part that was not asked for");
    results[index] = std::move(result);
    ++position;
  }
  return results;
}

}  // namespace headrace::azure
