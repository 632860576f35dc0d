// A plain file is read from where the scan stands, which may skip what it need not see. A
// compressed one is read to its end, and what it inflates to is fed through a window that holds
// only what the scan has not passed: so memory does not depend on the inflated size, but for the
// bounds of the samples, which check_held() limits.
#include "shard/scan/file_reading.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::detail {
namespace {

// One step of inflating. Large enough that a scan is fed thousands of samples at a time, small
// enough for the L2 cache.
constexpr std::size_t kInflateStepBytes = std::size_t{256} << 10;

}  // namespace

FileReading::Demand FileReading::demand(std::uint64_t aim_bytes) const noexcept {
  std::uint64_t offset = read_bytes_;
  std::uint64_t length = aim_bytes;
  if (!is_compressed()) {
    offset = scan_->offset();
    length = std::max(aim_bytes, scan_->needed_bytes());
  }
  return {offset, std::min(length, size_bytes_ - offset)};
}

Status FileReading::take(std::span<const std::byte> bytes, FileScanJob& job) {
  if (!has_begun_) HEADRACE_TRY(begin(bytes, job));
  return is_compressed() ? take_compressed(bytes) : take_plain(bytes);
}

Status FileReading::begin(std::span<const std::byte> head, FileScanJob& job) {
  has_begun_ = true;
  form_.compression = job.form_of(head);
  form_.raw_bytes = size_bytes_;
  if (!is_compressed()) return Status();
  form_.raw_bytes = 0;
  HEADRACE_TRY_ASSIGN(inflater_, StreamInflater::create(form_.compression));
  return Status();
}

Status FileReading::take_plain(std::span<const std::byte> bytes) {
  const std::uint64_t end = scan_->offset() + bytes.size();
  HEADRACE_TRY(scan_->feed(bytes));
  if (end < size_bytes_ && scan_->offset() < size_bytes_) return Status();
  is_done_ = true;
  return scan_->finish(size_bytes_);
}

Status FileReading::take_compressed(std::span<const std::byte> bytes) {
  read_bytes_ += bytes.size();
  bool has_room = false;
  // A full step may have left output inside the inflater although its input is used up.
  while (!bytes.empty() || !has_room) {
    const std::size_t before = window_.size();
    window_.resize(before + kInflateStepBytes);
    HEADRACE_TRY_ASSIGN(const StreamInflater::Step step,
                        inflater_->step(bytes, std::span(window_).subspan(before)));
    window_.resize(before + step.produced_bytes);
    form_.raw_bytes += step.produced_bytes;
    if (form_.raw_bytes > kMostInflatedBytes) {
      return Status(Code::kUnsupported,
                    "inflates to more than 64 GiB; unpack it, a compressed file is read whole");
    }
    bytes = bytes.subspan(step.consumed_bytes);
    has_room = step.produced_bytes < kInflateStepBytes;
    HEADRACE_TRY(feed_window());
    HEADRACE_TRY(check_held());
  }
  return read_bytes_ == size_bytes_ ? finish() : Status();
}

Status FileReading::check_held() const {
  const std::uint64_t held = scan_->held_bytes();
  if (held <= most_held_bytes_) return Status();
  return Status(Code::kExhausted,
                fmt::format("the bounds of the samples in its first {} bytes, inflated, take {} "
                            "bytes, of at most {}: raise memory=, or unpack or split the file",
                            form_.raw_bytes, held, most_held_bytes_));
}

// Drops what the scan has passed over, and feeds the rest when it is enough.
Status FileReading::feed_window() {
  while (true) {
    const std::uint64_t gone =
        std::min<std::uint64_t>(scan_->offset() - window_offset_, window_.size());
    window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(gone));
    window_offset_ += gone;
    if (window_offset_ < scan_->offset() || window_.empty() ||
        window_.size() < scan_->needed_bytes())
      return Status();
    HEADRACE_TRY(scan_->feed(window_));
    if (scan_->offset() == window_offset_) return Status();
  }
}

Status FileReading::finish() {
  if (!inflater_->is_complete())
    return Status(Code::kCorrupt, "the compressed file is cut off before its end");
  is_done_ = true;
  if (scan_->offset() < form_.raw_bytes && !window_.empty()) HEADRACE_TRY(scan_->feed(window_));
  return scan_->finish(form_.raw_bytes);
}

}  // namespace headrace::detail
