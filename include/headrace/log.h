#pragma once
/// \file
/// What the engine has to say while it runs: requests that were repeated, a store that throttles,
/// batches that came late, an index that is being made. Lines wait in memory until somebody takes
/// them; the engine never calls anybody and never prints.
///
/// Place: src/base/. Every part may write; the program takes: the Python package a few times a
/// second, into `logging`. Off until set_level(): then a write costs one load. Design:
/// docs/design/0052-log.md.
///
/// Threads: all functions from any thread; none waits for anything but a short lock.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "headrace/clock.h"

namespace headrace {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

struct LogLine {
  LogLevel level = LogLevel::kInfo;
  std::string_view area;  ///< "store", "copy", "loader", "index", "cache", "credentials"; static.
  std::string text;       ///< One line, without secrets.
  std::chrono::sys_time<std::chrono::milliseconds> at{};
};

/// A kind of event that is counted, and told in one line for each span of time in which there were
/// any: "37 requests to s3://bucket repeated in the last 10 s, last: GET ...". The texts are
/// static.
struct LogEvent {
  std::string_view area;
  LogLevel level = LogLevel::kInfo;
  std::string_view one, many;  ///< "request to", "requests to".
  std::string_view what;       ///< "repeated after failures"; tells kinds apart.
  /// With so many in one span it is a warning. 0: never.
  std::uint64_t warn_from = 0;
  std::string_view advice = {};  ///< Ends the line of a warning: "see docs/stalls.md#throttled".
  /// The first of a span is told when it comes, and the line at its end counts the others: for what
  /// somebody is waiting to hear.
  bool is_told_at_once = false;
};

class Log {
 public:
  /// Of the events of one kind and subject, from the first on. Source: docs/design/0052-log.md.
  static constexpr std::chrono::seconds kSpan{10};
  struct Options {
    /// Lines that wait; with more, new ones are dropped, and the next take() says how many. A line
    /// is about 200 bytes.
    std::size_t capacity = 1000;
    Clock* clock = nullptr;  ///< Of spans. nullptr: system_clock().
  };

  Log() : Log(Options{}) {}
  explicit Log(const Options& options);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// Lines below `least` are not kept. kOff at first.
  void set_level(LogLevel least) noexcept { level_.store(least, std::memory_order_relaxed); }
  LogLevel level() const noexcept { return level_.load(std::memory_order_relaxed); }
  /// Whether a line of this level would be kept: to be asked before its text is made.
  bool wants(LogLevel level) const noexcept { return level >= this->level(); }

  /// Keeps a line. `area`: static.
  void write(LogLevel level, std::string_view area, std::string text);
  /// Counts an event about `subject` (a store's URL); `last`: what happened. At most 64 kinds and
  /// subjects at a time; further ones are told as lines of their own.
  void count(const LogEvent& event, std::string_view subject, std::string last);

  /// Hands the lines over to `sink`, oldest first, outside of the lock; ends the spans that are
  /// over, all of them with `ends_spans` (at the end of a program). Returns how many there were.
  std::size_t take(const std::function<void(const LogLine&)>& sink, bool ends_spans = false);

 private:
  struct State;
  std::atomic<LogLevel> level_{LogLevel::kOff};  // A hint for writers, so relaxed.
  const std::unique_ptr<State> state_;
};

/// The log of whoever was given none: one a process, as stderr is. Never destroyed.
Log& process_log() noexcept;

/// For the child side of fork(): process_log() becomes another, empty one of the same level, since
/// the lock of the parent's may be held for ever, and its lines are the parent's to tell.
void renew_process_log();

}  // namespace headrace
