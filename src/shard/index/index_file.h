#pragma once
/// \file
/// Bytes of an index, and the directory where built indexes are kept.
///
/// Place: with index_pages.h and partial.h the only part of src/shard that touches the local file
/// system.
///
/// Threads: IndexBytes has one owner and is immutable. Several processes may publish and read the
/// same file.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"
#include "shard/index/index_pages.h"

namespace headrace::detail {

/// Move-only; moved-from is empty.
class IndexBytes {
 public:
  /// Files up to this lie in memory as a whole. 10^8 samples of varying size; copied in 0.1 s.
  static constexpr std::uint64_t kMostCopiedBytes = std::uint64_t{256} << 20;

  IndexBytes();
  explicit IndexBytes(std::string bytes);
  IndexBytes(IndexBytes&& other) noexcept;
  IndexBytes& operator=(IndexBytes&& other) noexcept;
  ~IndexBytes();
  /// The content of a file, in memory: nothing that happens to the file matters any more. Of files
  /// above `most_copied_bytes` the boundaries of samples, which are most of them, are left out and
  /// read as they are looked at: see pages(). Errors: kNotFound, kChanged (it shrank meanwhile),
  /// kUnavailable (anything else that open, read or mmap say).
  static Result<IndexBytes> read(const std::string& path,
                                 std::uint64_t most_copied_bytes = kMostCopiedBytes);
  /// All of the file; zeros where it was left out.
  std::span<const std::byte> bytes() const noexcept;
  /// Where what was left out is read; nullptr when nothing was.
  const IndexPages* pages() const noexcept { return pages_.get(); }
  /// bytes() after reading what was left out, which then stays in memory. Empty when that fails.
  /// Any thread.
  std::span<const std::byte> whole() const noexcept;

 private:
  /// Bytes [begin, end) of the file that are read when they are looked at.
  struct LeftOut {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  struct Image;

  static Result<IndexBytes> read_parts(Fd fd, const std::string& path, std::size_t size);

  std::unique_ptr<std::string> owned_;  // On the heap: views into it survive a move.
  std::unique_ptr<Image> image_;
  std::unique_ptr<IndexPages> pages_;  // Into image_: goes first.
};

/// `<dir>/<32 hex digits>.hri`, a name for an index of the dataset at `url` in the version that
/// `manifest` describes.
std::string cached_index_path(const std::string& dir, std::string_view url,
                              std::string_view manifest);

/// atomic_write_private_file(), after making the directory.
Status publish_file(const std::string& path, std::string_view bytes);

}  // namespace headrace::detail
