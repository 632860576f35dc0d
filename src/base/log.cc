// A writer holds the lock for as long as it takes to move a string; take() swaps the lines out and
// calls the sink without it, so a sink may be slow, and may write itself.
#include "headrace/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace headrace {
namespace {

/// Kinds and subjects counted at a time: stores of one process are few.
constexpr std::size_t kMaxSpans = 64;

auto wall_time() {
  return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

std::atomic<Log*>& process_pointer() noexcept {
  static std::atomic<Log*> log{new Log()};
  return log;
}

}  // namespace

struct Log::State {
  /// Events of one kind about one subject since `from`.
  struct Span {
    LogEvent event;
    std::string subject;
    TimePoint from{};
    std::uint64_t count = 0;
    std::string last;

    bool is_warning() const noexcept { return event.warn_from > 0 && count >= event.warn_from; }
    LogLine line(TimePoint now) const;
  };

  explicit State(const Options& options)
      : capacity(options.capacity),
        clock(options.clock != nullptr ? *options.clock : system_clock()) {}

  void keep(LogLine line) HEADRACE_REQUIRES(mutex) {
    if (lines.size() < capacity) {
      lines.push_back(std::move(line));
    } else {
      ++dropped;
    }
  }

  /// Makes lines of the spans that are over at `now`.
  void end_spans(TimePoint now, LogLevel least) HEADRACE_REQUIRES(mutex) {
    std::erase_if(spans, [&](const Span& span) HEADRACE_REQUIRES(mutex) {
      if (now - span.from < kSpan) return false;
      tell(span, std::min(now, span.from + kSpan), least);
      return true;
    });
  }

  void tell(const Span& span, TimePoint now, LogLevel least) HEADRACE_REQUIRES(mutex) {
    if (span.count == 0) return;  // the first was told at once, and none came after it
    LogLine line = span.line(now);
    if (line.level >= least) keep(std::move(line));
  }

  const std::size_t capacity;
  Clock& clock;
  Mutex mutex;
  std::vector<LogLine> lines HEADRACE_GUARDED_BY(mutex);
  std::vector<Span> spans HEADRACE_GUARDED_BY(mutex);
  std::uint64_t dropped HEADRACE_GUARDED_BY(mutex) = 0;
};

LogLine Log::State::Span::line(TimePoint now) const {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(now - from).count();
  const std::string_view advice = is_warning() ? event.advice : std::string_view();
  return {.level = is_warning() ? std::max(LogLevel::kWarning, event.level) : event.level,
          .area = event.area,
          .text = fmt::format("{} {} {} {} in the last {} s, last: {}{}{}", count,
                              count == 1 ? event.one : event.many, subject, event.what,
                              std::max<std::int64_t>(1, seconds), last, advice.empty() ? "" : "; ",
                              advice),
          .at = wall_time()};
}

Log::Log(const Options& options) : state_(std::make_unique<State>(options)) {}
Log::~Log() = default;

void Log::write(LogLevel level, std::string_view area, std::string text) {
  if (!wants(level)) return;
  LogLine line{.level = level, .area = area, .text = std::move(text), .at = wall_time()};
  MutexLock lock(state_->mutex);
  state_->keep(std::move(line));
}

void Log::count(const LogEvent& event, std::string_view subject, std::string last) {
  const LogLevel most =
      event.warn_from > 0 ? std::max(LogLevel::kWarning, event.level) : event.level;
  if (!wants(most)) return;
  const TimePoint now = state_->clock.now();
  MutexLock lock(state_->mutex);
  state_->end_spans(now, level());
  auto& spans = state_->spans;
  auto found = std::find_if(spans.begin(), spans.end(), [&](const State::Span& span) {
    return span.event.what == event.what && span.subject == subject;
  });
  if (found == spans.end()) {
    State::Span span{
        .event = event, .subject = std::string(subject), .from = now, .count = 0, .last = {}};
    const bool is_full = spans.size() >= kMaxSpans;
    if (is_full || event.is_told_at_once) {
      span.count = 1;
      span.last = std::move(last);
      state_->tell(span, now, level());
      span.count = 0;
      if (!is_full) spans.push_back(std::move(span));
      return;
    }
    found = spans.insert(spans.end(), std::move(span));
  }
  ++found->count;
  found->last = std::move(last);
}

std::size_t Log::take(const std::function<void(const LogLine&)>& sink, bool ends_spans) {
  std::vector<LogLine> lines;
  std::uint64_t dropped = 0;
  const TimePoint now = state_->clock.now();
  {
    MutexLock lock(state_->mutex);
    if (ends_spans) {
      for (const State::Span& span : state_->spans) state_->tell(span, now, level());
      state_->spans.clear();
    }
    state_->end_spans(now, level());
    lines.swap(state_->lines);
    dropped = std::exchange(state_->dropped, 0);
  }
  for (const LogLine& line : lines) sink(line);
  if (dropped == 0) return lines.size();
  sink({.level = LogLevel::kWarning,
        .area = "log",
        .text = fmt::format("{} more lines came faster than they were taken, and were dropped",
                            dropped),
        .at = wall_time()});
  return lines.size() + 1;
}

Log& process_log() noexcept { return *process_pointer().load(std::memory_order_acquire); }

void renew_process_log() {
  auto fresh = std::make_unique<Log>();
  fresh->set_level(process_log().level());
  // The old one stays: objects of the parent still point to it, and its lock may be held.
  process_pointer().store(fresh.release(), std::memory_order_release);
}

}  // namespace headrace
