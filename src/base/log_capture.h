#pragma once
/// \file
/// For tests: what the process logs for as long as this object lives.
#include <cstddef>
#include <string>
#include <vector>

#include "headrace/log.h"

namespace headrace {

/// Turns process_log() on, and off again when it goes; what others left in it is thrown away.
/// Threads: one owner; the lines come from any thread.
class LogCapture {
 public:
  explicit LogCapture(LogLevel least) {
    take();
    process_log().set_level(least);
  }
  ~LogCapture() {
    process_log().set_level(LogLevel::kOff);
    take();
  }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  /// What has come since the last call, oldest first, what was only counted included: "store
  /// warning: GET ...".
  std::vector<std::string> take() {
    std::vector<std::string> lines;
    process_log().take(
        [&](const LogLine& line) {
          lines.push_back(std::string(line.area) + ' ' + name_of(line.level) + ": " + line.text);
        },
        true);
    return lines;
  }

 private:
  static const char* name_of(LogLevel level) noexcept {
    constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
    return kNames[static_cast<std::size_t>(level)];
  }
};

}  // namespace headrace
