#pragma once
/// \file
/// Runs a FileScan over bytes in memory as scan_files() does, for tests and fuzzers.
#include <algorithm>
#include <cstdlib>
#include <span>

#include "shard/scan/file_scan.h"

namespace headrace::testing {

/// Feeds `file` in pieces of `piece_bytes` (> 0) or what the scan needs. Aborts when a scan makes
/// no progress.
inline Status drive_scan(detail::FileScan& scan, std::span<const std::byte> file,
                         std::uint64_t piece_bytes) {
  while (scan.offset() < file.size()) {
    const std::uint64_t offset = scan.offset();
    const std::uint64_t needed = scan.needed_bytes();
    const std::uint64_t length = std::min(std::max(piece_bytes, needed), file.size() - offset);
    HEADRACE_TRY(scan.feed(file.subspan(offset, length)));
    if (offset + length == file.size()) break;
    if (scan.offset() <= offset && scan.needed_bytes() <= length) std::abort();
  }
  return scan.finish(file.size());
}

}  // namespace headrace::testing
