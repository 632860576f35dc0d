#pragma once
/// \file
/// What disk_faults.cc does to a process that it is preloaded into: calls of the system about files
/// below one directory fail, as on a disk that is full, broken or read-only, and the clock is
/// wrong.
///
/// HEADRACE_FAULT_ROOT names the directory, HEADRACE_FAULT_CONTROL a file with a DiskFaults, which
/// may change at any moment.
#include <atomic>
#include <cstdint>

namespace headrace {

/// Shares are of 1,000 calls. All zeros: no faults. tests/python/test_cache_disk_faults.py writes
/// it.
struct DiskFaults {
  std::atomic<std::uint32_t> read_eio;
  std::atomic<std::uint32_t> write_eio;
  std::atomic<std::uint32_t> no_space;     ///< Of calls that take room.
  std::atomic<std::uint32_t> short_count;  ///< Of reads and writes: half of it.
  std::atomic<std::uint32_t> is_read_only;
  std::atomic<std::uint32_t> no_tmpfile;  ///< Files without a name are not known.
  std::atomic<std::uint32_t> no_links;    ///< Nor second names of a file.
  std::atomic<std::int64_t> clock_offset_s;
  std::atomic<std::uint64_t> given_count;  ///< Faults so far.
};

}  // namespace headrace
