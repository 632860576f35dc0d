#include "feed/slow_batches.h"

#include <fmt/format.h>

#include "headrace/log.h"

namespace headrace::feed {
namespace {

double seconds_of(Microseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

StallAdvice stall_advice(StallCause cause) noexcept {
  switch (cause) {
    case StallCause::kMemory:
      return {"memory to read {}",
              "what is read and not used yet fills memory=: raise it, or lower block_bytes= or "
              "prefetch=; see docs/stalls.md#memory"};
    case StallCause::kThrottled:
      return {"the turn of {}, while the store refused requests for their rate",
              "a cache= asks it for less, a higher quota lets it give more; see "
              "docs/stalls.md#throttled"};
    case StallCause::kFirstByte:
      return {"first bytes from {}",
              "the store or the way to it answers late: more memory= reads further ahead, cache= "
              "asks less often; see docs/stalls.md#first_byte"};
    case StallCause::kTransfer:
      return {"the bytes of {}",
              "the line or the store gives less than the loop takes: cache=, smaller data, or a "
              "slower loop; see docs/stalls.md#transfer"};
    case StallCause::kCacheRead:
      return {"{} from the cache",
              "its disk, or what is shared with others, is slower than the loop; see "
              "docs/stalls.md#cache_read"};
    case StallCause::kDecompress:
      return {"{} to be decompressed",
              "too few cores: raise workers=, or store the data less compressed; see "
              "docs/stalls.md#decompress"};
    case StallCause::kDecode:
      return {"the decoding of the batch with {}",
              "too few cores: raise workers=, or store smaller images; see docs/stalls.md#decode"};
    case StallCause::kTransform:
      return {"the user's functions on the batch with {}",
              "raise workers= of map(), or do less in them; see docs/stalls.md#transform"};
    default:
      return {"the batch with {} to be planned and put together",
              "the process has too little CPU, or builds its order; see docs/stalls.md#other"};
  }
}

void SlowBatches::after(std::span<const WaitInterval> waits, const BatchTimeline& timeline,
                        TimePoint now, const std::function<std::string()>& name) {
  Microseconds waited{0};
  for (const WaitInterval& wait : waits) waited += wait_length(wait);
  if (waited < kSlow) return;
  Log& log = process_log();
  if (!log.wants(LogLevel::kWarning)) return;
  if (now < quiet_until_) {
    ++untold_count_;
    untold_ += waited;
    return;
  }
  StallBook book;
  for (const WaitInterval& wait : waits) book_wait(book, wait, timeline);
  const StallCause cause = main_cause(book);
  const StallAdvice advice = stall_advice(cause);
  const std::string what = name();
  const std::string cause_text =
      fmt::format(fmt::runtime(advice.waited_for), what.empty() ? "what it needs" : what);
  const auto share =
      Microseconds(static_cast<std::int64_t>(book.total_us(static_cast<std::size_t>(cause))));
  std::string text = fmt::format("waited {:.1f} s for a batch, {:.1f} s of it for {}",
                                 seconds_of(waited), seconds_of(share), cause_text);
  const bool was_read_often = timeline.slowest.attempts > 1 && !what.empty();
  if (was_read_often) text += fmt::format(" (attempt {})", timeline.slowest.attempts);
  if (untold_count_ > 0) {
    text += fmt::format("; for {} more since the last such line {:.1f} s", untold_count_,
                        seconds_of(untold_));
  }
  log.write(LogLevel::kWarning, "loader", text + ": " + std::string(advice.advice));
  quiet_until_ = now + kQuiet;
  untold_count_ = 0;
  untold_ = Microseconds(0);
}

}  // namespace headrace::feed
