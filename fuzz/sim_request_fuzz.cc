// Requests as the simulator reads them: head, target, body framing. Checks, besides memory errors:
// the target and the payload are the same whatever the cuts of the body.
#include <cstdint>
#include <string>

#include "http/request.h"
#include "require.h"
#include "sim/body_reader.h"
#include "sim/key_path.h"
#include "sim/object_sums.h"
#include "sim/target.h"

namespace {

using headrace::http::RequestHead;
namespace sim = headrace::sim;

void check_target(const RequestHead& head) {
  sim::Target target;
  if (sim::parse_target(head, target) != sim::S3Code::kNone) return;
  require(target.kind != sim::Kind::kInvalid);
  if (target.key.empty() || target.kind == sim::Kind::kAdmin) return;
  require(target.key.size() <= sim::kMaxKeyBytes);
  const auto back = sim::key_of_escaped_path(sim::escaped_key_path(target.key));
  require(back.has_value() && *back == target.key);
}

/// The payload of `body` fed in pieces of `step` bytes; "error" stands for a refusal.
std::string read_body(const RequestHead& head, std::string_view body, std::size_t step) {
  sim::BodyReader reader;
  sim::BodyReader::Target target;
  target.max_memory_bytes = 1 << 16;
  (void)reader.open(head, target);
  while (!body.empty() && !reader.done()) {
    const std::size_t used = reader.feed(body.substr(0, step));
    require(used > 0);
    body.remove_prefix(used);
  }
  if (!reader.done() || reader.finish() != sim::S3Code::kNone) return "error";
  return reader.memory();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  (void)sim::sums_from_text(input);
  RequestHead head;
  const auto parsed = headrace::http::parse_request_head(input, head);
  if (!parsed || *parsed == 0) return 0;
  check_target(head);
  const std::string_view body = input.substr(*parsed);
  const std::string whole = read_body(head, body, body.size() + 1);
  require(read_body(head, body, 1) == whole);
  require(read_body(head, body, 7) == whole);
  return 0;
}
