#pragma once
/// \file
/// FileReading: one file that is being scanned, plain or compressed: says what to read next and
/// hands what was read on to its FileScan. Pure.
///
/// Threads: one owner.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shard/codec/stream_inflater.h"
#include "shard/scan/scan_files.h"

namespace headrace::detail {

/// A compressed file is one block, read and inflated whole; nothing larger fits a loader.
inline constexpr std::uint64_t kMostInflatedBytes = std::uint64_t{64} << 30;

class FileReading {
 public:
  /// `size_bytes` > 0: as stored. `most_held_bytes`: for what is found in a compressed file, which
  /// may be many thousand times its size.
  FileReading(std::unique_ptr<FileScan> scan, std::uint64_t size_bytes,
              std::uint64_t most_held_bytes)
      : scan_(std::move(scan)), size_bytes_(size_bytes), most_held_bytes_(most_held_bytes) {}

  bool has_begun() const noexcept { return has_begun_; }
  bool is_done() const noexcept { return is_done_; }
  bool is_compressed() const noexcept { return form_.compression != Compression::kNone; }
  struct Demand {
    std::uint64_t offset_bytes = 0;  ///< In the stored file.
    std::uint64_t length_bytes = 0;  ///< > 0
  };
  /// What to read next, about `aim_bytes`. \pre !is_done()
  Demand demand(std::uint64_t aim_bytes) const noexcept;
  /// Takes what the last demand() asked for. Errors: as FileScan; those of inflating; kExhausted
  /// (more samples in a compressed file than there is memory for).
  Status take(std::span<const std::byte> bytes, FileScanJob& job);

  FileScan& scan() noexcept { return *scan_; }
  const FileForm& form() const noexcept { return form_; }

 private:
  Status begin(std::span<const std::byte> head, FileScanJob& job);
  Status take_plain(std::span<const std::byte> bytes);
  Status take_compressed(std::span<const std::byte> bytes);
  Status feed_window();
  Status check_held() const;
  Status finish();

  const std::unique_ptr<FileScan> scan_;
  const std::uint64_t size_bytes_;
  const std::uint64_t most_held_bytes_;
  bool has_begun_ = false;
  bool is_done_ = false;
  FileForm form_;
  // Of a compressed file: how far it was read, and inflated bytes that the scan has not done with.
  std::unique_ptr<StreamInflater> inflater_;
  std::uint64_t read_bytes_ = 0;
  std::vector<std::byte> window_;
  std::uint64_t window_offset_ = 0;  ///< Of its first byte in the inflated file.
};

}  // namespace headrace::detail
