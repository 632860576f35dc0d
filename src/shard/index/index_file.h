#pragma once
/// \file
/// Bytes of an index, in memory or mapped, and the directory where built indexes are kept.
///
/// Place: with partial.h the only part of src/shard that touches the local file system.
///
/// Threads: IndexBytes has one owner and is immutable. Several processes may publish and map the
/// same file.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace::detail {

/// Move-only; moved-from is empty.
class IndexBytes {
 public:
  IndexBytes() = default;
  explicit IndexBytes(std::string bytes)
      : owned_(std::make_unique<std::string>(std::move(bytes))) {}
  IndexBytes(IndexBytes&& other) noexcept;
  IndexBytes& operator=(IndexBytes&& other) noexcept;
  ~IndexBytes();
  /// The content of a file: a copy of it up to `most_copied_bytes`, so that nothing that happens to
  /// the file matters any more; larger ones are mapped, which all processes of the machine share
  /// (and who truncates such a file ends them by SIGBUS: docs/design/0030-decoded-memory.md).
  /// Errors: kNotFound, kChanged (it shrank meanwhile), kUnavailable (anything else that open, read
  /// or mmap say).
  static Result<IndexBytes> read(const std::string& path,
                                 std::uint64_t most_copied_bytes = kMostCopiedBytes);
  /// 10^8 samples of varying size; copied in 0.1 s.
  static constexpr std::uint64_t kMostCopiedBytes = std::uint64_t{256} << 20;
  std::span<const std::byte> bytes() const noexcept;

 private:
  std::unique_ptr<std::string> owned_;  // On the heap: views into it survive a move.
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

/// `<dir>/<32 hex digits>.hri`, a name for an index of the dataset at `url` in the version that
/// `manifest` describes.
std::string cached_index_path(const std::string& dir, std::string_view url,
                              std::string_view manifest);

/// atomic_write_private_file(), after making the directory.
Status publish_file(const std::string& path, std::string_view bytes);

}  // namespace headrace::detail
