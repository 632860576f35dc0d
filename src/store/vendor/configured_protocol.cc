#include "store/vendor/configured_protocol.h"

namespace headrace::vendor {

std::string describe_transfer(const Request& request, std::string_view root_url) {
  std::string text(method_of(request.op));
  text.append(" ").append(root_url).append("/").append(request.key);
  if (request.op == Op::kGet) {
    return text + " [" + std::to_string(request.offset_bytes) + ", " +
           std::to_string(request.offset_bytes + request.length_bytes) + ")";
  }
  if (request.op == Op::kHead) return text;
  if (request.op == Op::kPutPart) text += " part " + std::to_string(request.part_number);
  return text + " (" + std::to_string(request.length_bytes) + " bytes)";
}

Status check_presign(const PresignRequest& request, std::chrono::seconds longest) {
  if (request.op != Op::kGet && request.op != Op::kPut)
    return Status(Code::kInvalidArgument, "only GET and PUT can be presigned");
  if (request.op == Op::kPut && !request.version_id.empty())
    return Status(Code::kInvalidArgument, "a version cannot be written: presign GET");
  if (request.lifetime < std::chrono::seconds(1) || request.lifetime > longest) {
    return Status(Code::kInvalidArgument, longest == kLongestPresigned
                                              ? "the lifetime must be 1 second to 7 days"
                                              : "the lifetime must be above zero");
  }
  return {};
}

}  // namespace headrace::vendor
