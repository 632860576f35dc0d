#pragma once
/// \file
/// Tables of Mosaic's orders in files: made once, shared by the ranks of a node, found again by a
/// resumed run. Small ones are read into memory, large ones page by page.
///
/// Place: src/feed. A table is `<directory>/<key>-<boot>.order`: a header that names its inputs,
/// size and the boot it was written in, and has a checksum of the entries (XXH3, checked when a
/// process opens it); then the entries. It appears by atomic rename, so a file is whole or absent,
/// whoever dies when; after a reboot (when unwritten pages may be lost) it is made anew, as is one
/// of another owner or with other bytes. On network file systems and FUSE tables stay in memory.
///
/// Threads: any; processes too: a lock of the table (`<key>-<boot>.lock`), which the kernel drops
/// with its owner, sees that each is made by one of them.
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include "headrace/mosaic_order.h"

namespace headrace {

struct OrderTableOptions {
  /// Existing directory on a local file system; empty: the table stays in this process's memory.
  std::string directory;
  /// Newest tables kept in the directory; others are removed when one is added (who reads them goes
  /// on). >= 1.
  std::uint32_t kept_tables = 8;
  /// Smaller tables stay in memory: making them takes less than a millisecond.
  std::uint64_t least_bytes = 1 << 20;
  /// Larger tables are read in pages of the file, which the ranks of a node share, each with a sum
  /// of its own; when the file is cut off or changed, the table is made once more in memory. The
  /// process that makes one needs memory for all of it meanwhile. The default: 67 million samples.
  std::uint64_t most_copied_bytes = std::uint64_t{256} << 20;
  std::uint32_t threads = 0;  ///< For making; 0: the machine's.
  /// How long to wait for another process that makes the same table, before making one in memory.
  /// The default, a minute, is a choice: of slower tables each process makes its own. 0: not at
  /// all.
  std::chrono::milliseconds longest_wait{60'000};
};

/// The slots of `epoch`. Where the directory cannot take the table (full, read-only, gone) it stays
/// in memory. Blocks while another process makes the same table, at most longest_wait or
/// until `stop`; call it without Python's lock. Errors: kCancelled (`stop` during the wait), those
/// of MosaicEpoch::build().
Result<std::shared_ptr<const SampleList>> open_mosaic_list(const MosaicEpoch& epoch,
                                                           const OrderTableOptions& options,
                                                           const std::stop_token& stop = {});

}  // namespace headrace
