#pragma once
/// \file
/// The file of one extent: the page of its header (extent_header.h), its bytes, zeros up to a whole
/// page.
///
/// Much at a time is written and read past the page cache (O_DIRECT), where the file system can: a
/// page of it costs several times as much CPU as the disk's own access to a slab, and what fills it
/// is in the way of other processes. A little is read through it, as more of the same chunk may
/// follow.
///
/// Threads: any.
#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/status.h"
#include "tier/extent_header.h"
#include "tier/extent_name.h"

namespace headrace::tier {

/// Bytes of its file.
constexpr std::uint64_t file_bytes(const ExtentName& extent) noexcept {
  return kHeaderBytes + (extent.length_bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
}

/// Puts the header, and zeros behind the bytes, into what is to be the file; with a key, encrypts
/// the bytes. \pre `file` has file_bytes(), the extent's bytes at kHeaderBytes.
void seal_extent(const ExtentInfo& info, std::span<std::byte> file, const SealKey* key);

/// Errors: kCorrupt (not a header, or not of `name` where one is given), those of reading.
Result<ExtentInfo> read_info(int fd, const ExtentName* name);

/// Fills `out` with bytes of the extent from `from_bytes` (of the extent) on, proved by their sums;
/// `object_size_bytes` with what the header says. May turn O_DIRECT of `fd` on and off. Without
/// a copy where `out` begins at a page and the range where the extent does. `key`: decrypts it, and
/// what it has not encrypted is corrupt; without one, so is what is encrypted. \pre from_bytes +
/// out.size() <= length. Errors: kCorrupt, those of reading.
Status read_extent(int fd, const ExtentName& name, std::uint64_t from_bytes,
                   std::span<std::byte> out, std::uint64_t& object_size_bytes, const SealKey* key);

/// Whether an encrypted file is as it was written, as far as that is known without its key: by its
/// sums. `scratch`: as many bytes as the extent has. Errors: kCorrupt, those of reading.
Status check_sums(int fd, const ExtentName& name, std::span<std::byte> scratch);

/// Writes what seal_extent() made and shows it under its name in `directory` all at once, for whom
/// that is: whoever is killed meanwhile leaves nothing. \pre `file` begins at a page. Errors:
/// kChanged (it is there already), those of writing.
Status publish_extent(int directory, const ExtentName& name, std::span<const std::byte> file);

/// Gives a file that is being made in `directory` the mode of that. False, with errno: it could
/// not.
bool share_as_folder(int directory, int file) noexcept;
/// Shows a complete file without a name (O_TMPFILE) as an extent's. 0 or an errno: EEXIST (it is
/// there already), ENOENT (no /proc here, by which it is done).
int link_nameless(int file, int directory, const ExtentName& name) noexcept;

/// Deletes a file with an unfinished_name() unless somebody is writing it.
void remove_if_dead(int directory, const char* unfinished);

}  // namespace headrace::tier
