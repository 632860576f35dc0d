// Response heads and chunked bodies. Checks, besides memory errors: a complete head parses the same
// when bytes follow it, every shorter piece of it is incomplete or already refused, and the decoder
// gives the same bytes whatever the cuts.
#include <cstdint>
#include <string>

#include "http/request.h"
#include "http/response.h"
#include "require.h"

namespace {

using headrace::http::ChunkedDecoder;
using headrace::http::ResponseHead;

void check_head(std::string_view input) {
  ResponseHead head;
  auto size = headrace::http::parse_response_head(input, head);
  if (!size || *size == 0) return;
  require(*size <= input.size() && head.head_bytes == *size);
  require(!(head.is_chunked && head.content_length));
  static_cast<void>(headrace::http::body_length(head, false));
  static_cast<void>(head.header("content-type"));
  for (std::size_t n : {*size / 4, *size / 2, *size - 1}) {
    ResponseHead shorter;
    auto part = headrace::http::parse_response_head(input.substr(0, n), shorter);
    require(part && *part == 0);
  }
  ResponseHead alone;
  auto again = headrace::http::parse_response_head(input.substr(0, *size), alone);
  require(again && *again == *size && alone.status == head.status &&
          alone.content_length == head.content_length);
}

/// Decodes `input` in pieces of `step` bytes; "error" stands for a refusal.
std::string decode(std::string_view input, std::size_t step) {
  ChunkedDecoder decoder;
  std::string out;
  while (!input.empty() && !decoder.done()) {
    auto used = decoder.feed(input.substr(0, step), out, 4096);
    if (!used) return "error";
    require(*used > 0 || decoder.done());
    input.remove_prefix(*used);
  }
  require(out.size() <= 4096);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_head(input);
  headrace::http::RequestHead request;
  static_cast<void>(headrace::http::parse_request_head(input, request));
  const std::string whole = decode(input, input.size() + 1);
  require(decode(input, 1) == whole);
  require(decode(input, 7) == whole);
  return 0;
}
