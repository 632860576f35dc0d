#pragma once
/// \file
/// Bytes of an index, owned or memory-mapped, and the directory where built indexes are kept.
///
/// Place: with partial.h the only part of src/shard that touches the local file system.
///
/// Threads: IndexBytes has one owner and is immutable. Several processes may publish and map the
/// same file.
#include <cstddef>
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
  /// Errors: kNotFound, kUnavailable (anything else that open or mmap say).
  static Result<IndexBytes> map(const std::string& path);
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

/// atomic_write_file(), after making the directory.
Status publish_file(const std::string& path, std::string_view bytes);

}  // namespace headrace::detail
