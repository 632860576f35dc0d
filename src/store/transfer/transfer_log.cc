#include "store/transfer/transfer_log.h"

#include "headrace/log.h"

namespace headrace::transfer {
namespace {

// In a span of ten seconds. One refusal a second is what the concurrency control makes of a store
// at its limit; a loop then hardly waits. Resets and time-outs that often are an outage or a line
// at fault.
constexpr std::uint64_t kManyThrottles = 10;
constexpr std::uint64_t kManyRepeats = 100;

constexpr LogEvent requests(std::string_view what, LogLevel level, std::uint64_t warn_from = 0,
                            std::string_view advice = {}) {
  return {.area = "store",
          .level = level,
          .one = "request to",
          .many = "requests to",
          .what = what,
          .warn_from = warn_from,
          .advice = advice};
}

constexpr LogEvent kRepeated = requests("repeated after failures", LogLevel::kInfo, kManyRepeats,
                                        "see docs/stalls.md#requests-that-are-repeated");
constexpr LogEvent kThrottled =
    requests("refused for their rate, and repeated more slowly,", LogLevel::kInfo, kManyThrottles,
             "see docs/stalls.md#throttled");
constexpr LogEvent kUnreached = {.area = "store",
                                 .level = LogLevel::kWarning,
                                 .one = "request to",
                                 .many = "requests to",
                                 .what = "found no server so far,",
                                 .is_told_at_once = true};
constexpr LogEvent kHedged = requests("late, and made a second time,", LogLevel::kDebug);

}  // namespace

std::string log_subject(std::string_view url) { return std::string(url.substr(0, url.find('?'))); }

void log_repeated(const std::string& subject, Code code, const std::string& what) {
  process_log().count(code == Code::kThrottled ? kThrottled : kRepeated, subject, what);
}

void log_unreached(const std::string& subject, const std::string& what) {
  process_log().count(kUnreached, subject, what);
}

void log_hedged(const std::string& subject, const std::function<std::string()>& what) {
  Log& log = process_log();
  if (log.wants(LogLevel::kDebug)) log.count(kHedged, subject, what());
}

}  // namespace headrace::transfer
