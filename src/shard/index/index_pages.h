#pragma once
/// \file
/// IndexPages: parts of an index file that are too large for memory, read when they are looked at.
///
/// Place: between IndexBytes, which leaves them out, and BoundsView. Not a mapping: who cuts off a
/// mapped file ends its readers by SIGBUS, here they learn that it has changed
/// (docs/design/0030-decoded-memory.md). The kernel's pages of the file are shared by all processes
/// of the machine; of our own there are 16 MiB at most.
///
/// Threads: any.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "headrace/status.h"

namespace headrace::detail {

class IndexPages {
 public:
  /// 21,000 samples' group records, or the packed offsets of some 2,000 samples.
  static constexpr std::size_t kPageBytes = 4096;
  /// A loader looks at some hundred blocks at a time, a few pages each.
  static constexpr std::size_t kMostPages = 4096;

  /// `image`: as large as the file; its first `head_bytes` are those of the file, and no other file
  /// has the same ones. Must outlive this.
  IndexPages(Fd fd, std::string path, std::span<const std::byte> image, std::size_t head_bytes);

  /// Copies the bytes of the file that belong at `at`, a place in the image, to `out`. Zeros when
  /// that is outside the file or when reading fails, now or before: ask status() before anything
  /// that came of them is believed. Reads the file when the page is not in memory.
  void read(const std::byte* at, std::span<std::byte> out) const noexcept;

  bool has_failed() const noexcept { return has_failed_.load(std::memory_order_acquire); }
  /// Ok, or for ever why reading failed first: kChanged (cut off, or another index by now),
  /// kUnavailable.
  Status status() const HEADRACE_EXCLUDES(failure_mutex_);

  /// [begin, end) of the file, past the cache. Errors: as status().
  Status read_range(std::uint64_t begin, std::span<std::byte> out) const noexcept;

 private:
  using Page = std::array<std::byte, kPageBytes>;
  static constexpr std::size_t kStripes = 64;

  bool find(std::uint64_t page, std::size_t from, std::span<std::byte> out) const noexcept;
  bool load(std::uint64_t page, std::size_t from, std::span<std::byte> out) const noexcept;
  void keep(std::uint64_t page, const Page& bytes) const noexcept;
  Status fail(Status why) const noexcept HEADRACE_EXCLUDES(failure_mutex_);

  const Fd fd_;
  const std::string path_;
  const std::span<const std::byte> image_;
  const std::size_t head_bytes_;
  mutable std::array<Mutex, kStripes> mutexes_;  ///< Of places modulo kStripes.
  mutable std::vector<std::uint64_t> tags_;      ///< Page number + 1 of each place; 0: none.
  const std::unique_ptr<Page[]> pages_;          ///< Left uninitialised: memory as it is used.
  mutable std::atomic<bool> has_failed_{false};  ///< Released after failure_ was written.
  mutable Mutex failure_mutex_;
  mutable Status failure_ HEADRACE_GUARDED_BY(failure_mutex_);
};

}  // namespace headrace::detail
