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

}  // namespace headrace::vendor
