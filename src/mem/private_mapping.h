#pragma once
/// \file
/// PrivateMapping: a part of a file, such as another process's slab, mapped so that what is written
/// here is seen here alone. PageMap: which of its pages were written to.
///
/// Place: src/mem/; who maps what is its user's matter. Linux.
///
/// Threads: owner; bytes() from any thread.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "headrace/status.h"

namespace headrace::mem {

/// Private pages of a part of a file. Those of 2 MiB and more begin where a huge page could.
class PrivateMapping {
 public:
  /// `begin`: a multiple of the page size. The file may be closed after. Errors: kExhausted.
  static Result<std::unique_ptr<PrivateMapping>> create(int fd, std::uint64_t begin,
                                                        std::size_t size_bytes);
  PrivateMapping(const PrivateMapping&) = delete;
  PrivateMapping& operator=(const PrivateMapping&) = delete;
  ~PrivateMapping();

  std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// Makes copies of all pages: from now on nothing is seen here that others write to the file.
  /// \pre they write nothing yet.
  void keep() const noexcept;

 private:
  PrivateMapping(std::span<std::byte> room, std::span<std::byte> bytes)
      : room_(room), bytes_(bytes) {}
  const std::span<std::byte> room_;   ///< Addresses that are held, of which
  const std::span<std::byte> bytes_;  ///< these are the file's.
};

/// What the kernel says of this process's pages.
class PageMap {
 public:
  PageMap();
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;
  ~PageMap();

  /// Of private pages of a file drops those that were written to: reading them gives the file's
  /// bytes again. False where the kernel does not tell. `bytes` begin with a page.
  bool drop_written(std::span<std::byte> bytes) const noexcept;

 private:
  const int fd_;
};

}  // namespace headrace::mem
