#include "store/azure/azure_answers.h"

#include "http/date.h"
#include "http/fields.h"
#include "store/azure/azure_settings.h"

namespace headrace::azure {

Result<http::ResponseHead> head_of(const HttpAnswer& answer) {
  http::ResponseHead head;
  HEADRACE_TRY_ASSIGN(const std::size_t head_bytes, http::parse_response_head(answer.head, head));
  if (head_bytes == 0) return Status(Code::kCorrupt, "the answer's head is cut off");
  return head;
}

ObjectInfo object_info(const std::string& key, const http::ResponseHead& head) {
  ObjectInfo info;
  info.key = key;
  info.etag = head.etag;
  if (const auto modified = http::parse_http_date(head.header("last-modified"))) {
    info.modified_unix_s = modified->time_since_epoch().count();
  }
  return info;
}

Result<ObjectInfo> blob_info(const std::string& key, const http::ResponseHead& head) {
  if (!head.content_length)
    return Status(Code::kCorrupt, "the answer does not say how long the object is");
  ObjectInfo info = object_info(key, head);
  info.size_bytes = *head.content_length;
  info.details = object_details(head);
  return info;
}

bool is_directory(const http::ResponseHead& head) noexcept {
  return http::equals_ignoring_case(head.header("x-ms-meta-hdi_isfolder"), "true") ||
         head.header("x-ms-resource-type") == "directory";
}

}  // namespace headrace::azure
