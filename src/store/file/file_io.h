#pragma once
/// \file
/// Reading, writing and copying whole stretches of files, interruptible between pieces. Threads:
/// any.
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/atomic_file.h"
#include "base/fd.h"
#include "headrace/status.h"
#include "store/local_backend.h"

namespace headrace::file {

/// Opens a regular file for reading. Errors: kNotFound (also for a directory), others of
/// errno_status().
Result<Fd> open_object(const std::string& path, struct stat& info);
/// Fills `bytes` from `offset_bytes` on. Errors: kChanged (the file ends before), of `interrupt`,
/// of errno_status().
Status read_exactly(int fd, std::uint64_t offset_bytes, std::span<std::byte> bytes,
                    const Interrupt& interrupt);
/// kUnsupported when a file whose size is 0 has bytes, as those of /proc.
Status check_empty(int fd);
/// Brings the names in a directory to the disk. `path`: its own, for messages. Errors: those of
/// errno_status().
Status sync_directory(int directory, const std::string& path);
/// kChanged when the file is not what `before` says any more.
Status check_unchanged(int fd, const struct stat& before);
Status write_all(TemporaryFile& file, std::span<const std::byte> bytes, const Interrupt& interrupt);
/// Appends the first `size_bytes` of `from`, sharing its extents where the file system can.
Status append_file(TemporaryFile& file, int from, std::uint64_t size_bytes,
                   const Interrupt& interrupt);
/// Opens (O_PATH) the directory that holds a key, following links to the root but none below it.
/// Errors: kNotFound, kUnsupported (there is a link on the way), others of errno_status().
Result<Fd> open_real_parent(const std::string& root, std::string_view key);
/// Creates a directory and those above it. Errors: kUnsupported (a file is in the way), others of
/// errno_status().
Status make_directories(const std::string& path);
/// Removes a directory of plain files; errors are ignored.
void remove_directory(const std::string& path) noexcept;

}  // namespace headrace::file
