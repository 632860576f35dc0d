#pragma once
/// \file
/// TarScan: reads one tar from end to end as a sequence of demands for bytes. Pure; whoever drives
/// it does the reading.
///
/// Threads: one owner.
#include <cstdint>
#include <span>

#include "shard/webdataset/sample_grouper.h"

namespace headrace::detail {

class TarScan {
 public:
  explicit TarScan(std::uint64_t size_bytes) : size_bytes_(size_bytes) {}

  bool is_done() const noexcept { return offset_ >= size_bytes_; }
  /// Where the next bytes are wanted, and at least how many (fewer at the end of the file).
  std::uint64_t offset() const noexcept { return offset_; }
  std::uint64_t needed_bytes() const noexcept { return needed_bytes_; }
  /// Takes bytes from offset() on: needed_bytes() or more, or all up to the end of the file.
  /// Errors: kCorrupt, kUnsupported, with the offset. What tarfile and so WebDataset pass over in
  /// silence is an error too: a bad header, a cut header, data after the end mark.
  Status feed(std::span<const std::byte> bytes);

  const SampleGrouper& samples() const noexcept { return grouper_; }

 private:
  Status step(std::span<const std::byte>& bytes, bool& is_starved);
  Status check_tail(std::span<const std::byte> bytes);
  Status fail(Status status) const;

  const std::uint64_t size_bytes_;
  std::uint64_t offset_ = 0;
  std::uint64_t needed_bytes_ = kTarBlockBytes;
  bool is_after_end_ = false;
  SampleGrouper grouper_;
};

}  // namespace headrace::detail
