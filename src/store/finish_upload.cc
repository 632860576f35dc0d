#include "store/finish_upload.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace headrace {
namespace {

// What is left for looking when all attempts have failed.
constexpr std::chrono::seconds kLookTime{10};
// How long an object may take to appear after its upload has gone: the store is still working on
// it.
constexpr std::chrono::minutes kAppearTime{2};

bool is_doubtful(Code code) {
  return is_retryable(code) || code == Code::kDeadline || code == Code::kCorrupt;
}

}  // namespace

std::uint64_t total_bytes(std::span<const UploadedPart> parts) noexcept {
  std::uint64_t sum = 0;
  for (const UploadedPart& part : parts) sum += part.size_bytes;
  return sum;
}

ObjectInfo written_object(const std::string& key, std::span<const UploadedPart> parts,
                          std::string etag) {
  return {.key = key, .size_bytes = total_bytes(parts), .etag = std::move(etag)};
}

bool pause_for(std::chrono::milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

Result<std::optional<ObjectInfo>> finish_upload(const UploadEnd& end, Clock& clock,
                                                const std::stop_token& stop) {
  const auto spare =
      std::min<std::chrono::nanoseconds>((end.deadline - clock.now()) / 8, kLookTime);
  const TimePoint last_complete = end.deadline - spare;
  TimePoint until = end.deadline;
  bool may_be_done = false;
  bool is_gone = false;
  Status failure;
  for (auto pause = end.pause;; pause = std::min(2 * pause, end.longest_pause)) {
    if (!is_gone) {
      failure = end.complete(last_complete);
      if (failure.ok()) return std::optional<ObjectInfo>();
      const Code code = failure.code();
      if (code != Code::kNotFound && !is_doubtful(code)) return failure;
      may_be_done = may_be_done || code != Code::kNotFound;
      is_gone = code == Code::kNotFound;
      if (is_gone) until = std::min(until, clock.now() + kAppearTime);
    }
    auto found = end.find(end.deadline);
    if (found && *found) return found;
    if (!found && found.error().code() == Code::kCancelled) return std::move(found).error();
    // Gone before anything was asked of it: aborted, or expired.
    if (is_gone && !may_be_done) return failure;
    if (clock.now() + pause >= (is_gone ? until : last_complete)) break;
    if (!pause_for(pause, stop)) return Status(Code::kCancelled, end.what + ": cancelled");
  }
  return std::move(failure).annotate(
      "an earlier attempt may have completed it, but no object that is surely the upload's has "
      "appeared");
}

}  // namespace headrace
