#pragma once
/// \file
/// The text of one line of an access log. Pure.
#include <chrono>
#include <string>

#include "headrace/access_log.h"

namespace headrace {

/// Who writes: the same in every line.
struct AccessWriter {
  std::int64_t process_id = 0;
  std::optional<std::uint32_t> rank = {};
};

/// Appends a JSON object and a newline to `out`. `finished`: when, UTC. Bytes that are no UTF-8
/// become U+FFFD.
void append_access_line(std::string& out, const AccessWriter& writer, const AccessRecord& record,
                        std::chrono::sys_time<Microseconds> finished);

}  // namespace headrace
