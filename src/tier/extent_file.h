#pragma once
/// \file
/// The file of one extent: the page of its header (extent_header.h), its bytes, zeros up to a whole
/// page.
///
/// Much at a time is read, and written (new_extent.h), past the page cache (O_DIRECT), where the
/// file system can: a page of it costs several times as much CPU as the disk's own access to a
/// slab, and what fills it is in the way of other processes. A little is read through it, as more
/// of the same chunk may follow.
///
/// Threads: any.
#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/status.h"
#include "tier/extent_header.h"
#include "tier/extent_name.h"

namespace headrace::tier {

/// From this length on the page cache costs more than a disk's latency is worth. CPU s/GB of
/// writing 8 MiB: 0.87 through it, 0.08 past it (fio, virtio disk, 2 cores, 2026-11-24).
inline constexpr std::size_t kDirectBytes = std::size_t{256} << 10;

/// Bytes of its file.
constexpr std::uint64_t file_bytes(const ExtentName& extent) noexcept {
  return kHeaderBytes + (extent.length_bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
}

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

}  // namespace headrace::tier
