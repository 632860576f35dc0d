#pragma once
/// \file
/// FileScan: reads one file from front to back as a sequence of demands for bytes; what it has
/// found can be kept and taken up again.
///
/// Place: one subclass a format whose samples can only be found by reading (tar, TFRecord, text).
/// scan_files() drives them. Pure: whoever drives it does the reading, and the inflating.
///
/// Threads: one owner.
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headrace/status.h"

namespace headrace::detail {

/// What is kept of a scanned file.
struct FileSamples {
  /// Begin and end of each sample in turn when `has_gaps`, else the begins and the last end.
  std::vector<std::uint64_t> bounds;
  bool has_gaps = false;
  std::string facts;  ///< The format's own, for its builder.
  /// At the end of the file, passed over because the options are lenient.
  std::uint64_t cut_bytes = 0;

  std::uint64_t sample_count() const noexcept {
    if (has_gaps) return bounds.size() / 2;
    return bounds.empty() ? 0 : bounds.size() - 1;
  }
};

class FileScan {
 public:
  virtual ~FileScan() = default;

  /// Where the next bytes are wanted (of the inflated file), and at least how many. May lie beyond
  /// the end: then finish() is due.
  virtual std::uint64_t offset() const noexcept = 0;
  virtual std::uint64_t needed_bytes() const noexcept = 0;
  /// Takes bytes from offset() on: needed_bytes() or more, fewer at the end of the file. Errors:
  /// kCorrupt, kUnsupported, with the offset.
  virtual Status feed(std::span<const std::byte> bytes) = 0;
  /// The file has `size_bytes`, and all that there is from offset() on was fed. Call once, last.
  /// Errors: kCorrupt (it ends inside a sample).
  virtual Status finish(std::uint64_t size_bytes) = 0;
  /// Memory that the bounds found so far take.
  virtual std::uint64_t held_bytes() const noexcept = 0;
  /// What was found. Call once, after finish().
  virtual FileSamples take() = 0;
};

/// One that reads without a break and keeps the bounds of samples as it finds them.
class BoundsScan : public FileScan {
 public:
  std::uint64_t offset() const noexcept final { return offset_; }
  std::uint64_t held_bytes() const noexcept final { return bounds_.size() * sizeof(bounds_[0]); }

 protected:
  /// `bounds`: to begin with.
  explicit BoundsScan(std::vector<std::uint64_t> bounds) : bounds_(std::move(bounds)) {}

  std::uint64_t offset_ = 0;
  std::vector<std::uint64_t> bounds_;
};

}  // namespace headrace::detail
