#include "tier/cache_log.h"

#include "headrace/log.h"

namespace headrace::tier {
namespace {

constexpr std::string_view kArea = "cache";

constexpr LogEvent kFailed{.area = kArea,
                           .level = LogLevel::kWarning,
                           .one = "failure of",
                           .many = "failures of",
                           .what = "(reads go to the store)"};

std::string in_mib(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

void log_new_parent(const std::string& directory, const std::string& parent) {
  if (!process_log().wants(LogLevel::kWarning)) return;
  process_log().write(
      LogLevel::kWarning, kArea,
      directory + ": " + parent +
          " was not there, and was made; if it belongs to a disk of its own, that is "
          "not mounted, and the cache fills another");
}

void log_full_disk(const std::string& directory, std::uint64_t free_bytes,
                   std::uint64_t floor_bytes) {
  if (!process_log().wants(LogLevel::kWarning)) return;
  process_log().write(LogLevel::kWarning, kArea,
                      directory + ": what is fetched is not kept, since the disk has " +
                          in_mib(free_bytes) + " free and the cache leaves " + in_mib(floor_bytes) +
                          " to others; delete something, or name a directory on another disk");
}

void log_disk_failure(const std::string& directory, const Status& status) {
  if (!process_log().wants(LogLevel::kWarning)) return;
  process_log().count(kFailed, directory, std::string(status.message()));
}

}  // namespace headrace::tier
