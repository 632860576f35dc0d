#include <span>

#include "checkpoint/durable_file.h"
#include "headrace/checkpoint.h"

namespace headrace::checkpoint {

Result<std::string> write_small(StoreClient& client, const std::string& key, std::string_view bytes,
                                bool if_absent, const Pause& pause) {
  const std::string directory = client.store().local_directory();
  if (!directory.empty()) {
    HEADRACE_TRY(write_durable(directory, key, bytes, if_absent));
    HEADRACE_TRY_ASSIGN(ObjectInfo info, client.store().head(key));
    return std::move(info.etag);
  }
  Request request;
  request.op = Op::kPut;
  request.key = key;
  request.if_absent = if_absent;
  Completion done = client.write(
      std::move(request), std::as_bytes(std::span(bytes)), pause ? pause : [] {});
  HEADRACE_TRY(std::move(done.status));
  return std::move(done.etag);
}

}  // namespace headrace::checkpoint
