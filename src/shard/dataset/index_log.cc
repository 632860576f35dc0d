#include "shard/dataset/index_log.h"

#include <fmt/format.h>

#include <utility>

#include "headrace/log.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kArea = "index";

double seconds_since(TimePoint from, TimePoint now) {
  return std::chrono::duration<double>(now - from).count();
}

std::string_view origin_text(IndexOrigin origin) {
  return origin == IndexOrigin::kStored ? "by the index stored beside it"
                                        : "by an index made before";
}

}  // namespace

IndexLog::IndexLog(std::string url, Clock& clock)
    : url_(std::move(url)), clock_(clock), begun_(clock.now()), told_(begun_) {}

IndexLog::Progress IndexLog::listen(Progress then) {
  return [this, then = std::move(then)](std::uint64_t done, std::uint64_t all) {
    report(done, all);
    if (then) then(done, all);
  };
}

void IndexLog::report(std::uint64_t done, std::uint64_t all) {
  if (!process_log().wants(LogLevel::kInfo)) return;
  const TimePoint now = clock_.now();
  if (now - told_ < kInterval) return;
  told_ = now;
  const std::string of = all > 0 ? fmt::format(" of {}", all) : std::string();
  process_log().write(LogLevel::kInfo, kArea,
                      fmt::format("indexing {}: {}{} shards read in {:.0f} s", url_, done, of,
                                  seconds_since(begun_, now)));
}

void IndexLog::opened(const Dataset& dataset, IndexOrigin origin, bool is_storable) {
  const TimePoint now = clock_.now();
  const bool is_built = origin == IndexOrigin::kBuilt;
  const bool is_long = is_built && is_storable && now - begun_ >= kLong;
  const LogLevel level = is_long ? LogLevel::kWarning : LogLevel::kInfo;
  if (!process_log().wants(level)) return;
  const std::string what =
      fmt::format("{} ({}, {} samples in {} shards)", url_, format_name(dataset.format()),
                  dataset.sample_count(), dataset.shard_count());
  const double took_s = seconds_since(begun_, now);
  if (!is_built) {
    return process_log().write(
        level, kArea, fmt::format("opened {} {} in {:.2f} s", what, origin_text(origin), took_s));
  }
  std::string text = fmt::format("opened {}, whose index was made in {:.2f} s", what, took_s);
  if (is_storable) {
    text += fmt::format("; `headrace index {}` stores it there, for all who open it", url_);
  }
  process_log().write(level, kArea, std::move(text));
}

}  // namespace headrace::detail
