#pragma once
/// \file
/// What opening a dataset tells the log (headrace/log.h): how the making of an index goes, every
/// few seconds; what was opened; and, where the index had to be made, how to store it.
///
/// Threads: the opening one.
#include <cstdint>
#include <functional>
#include <string>

#include "headrace/clock.h"
#include "headrace/dataset.h"

namespace headrace::detail {

enum class IndexOrigin : std::uint8_t { kStored, kCached, kBuilt };

class IndexLog {
 public:
  using Progress = std::function<void(std::uint64_t, std::uint64_t)>;
  /// Between two lines of progress.
  static constexpr std::chrono::seconds kInterval{5};
  /// An index that took so long to make is worth a warning: others wait as long.
  static constexpr std::chrono::seconds kLong{10};

  IndexLog(std::string url, Clock& clock);
  /// Progress that is told here, and passed on.
  Progress listen(Progress then);
  /// `is_storable`: an index can lie beside the dataset, and would have been found there.
  void opened(const Dataset& dataset, IndexOrigin origin, bool is_storable);

 private:
  void report(std::uint64_t done, std::uint64_t all);

  const std::string url_;
  Clock& clock_;
  const TimePoint begun_;
  TimePoint told_;
};

}  // namespace headrace::detail
