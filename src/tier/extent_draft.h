#pragma once
/// \file
/// ExtentDraft: the file of an extent whose bytes come in parts of one size, in any order. Nobody
/// sees it before all are there; whoever is killed meanwhile leaves nothing. A part is a chunk of
/// the file: it is read and proved alone.
///
/// Threads: one at a time, but for write().
#include <cstdint>
#include <memory>
#include <span>

#include "base/fd.h"
#include "headrace/status.h"
#include "tier/extent_header.h"

namespace headrace::tier {

class ExtentDraft {
 public:
  /// A file without a name in `directory`. `part_bytes`: whole pages, of which the extent's length
  /// is a multiple of, kMostParts times at most. `key`: encrypts it; outlives this. \pre
  /// NewExtent::can_be_nameless(). Errors: those of making it.
  static Result<std::unique_ptr<ExtentDraft>> create(int directory, ExtentInfo info,
                                                     std::uint64_t part_bytes, const SealKey* key);

  const ExtentInfo& info() const noexcept { return info_; }
  std::uint64_t part_bytes() const noexcept { return part_bytes_; }

  /// Takes note of a part before it is written, and with a key encrypts it. Each once.
  void seal(std::uint64_t part, std::span<std::byte> bytes) { header_.add(part, bytes); }
  /// Writes a part that was sealed. Any thread, several at once for different parts. \pre `bytes`
  /// begins at a page. Errors: those of writing.
  Status write(std::uint64_t part, std::span<const std::byte> bytes) const;
  /// What write() wrote, as it was before seal(). \pre `out` begins at a page. Errors: kCorrupt,
  /// those of reading.
  Status read(std::uint64_t part, std::span<std::byte> out);
  /// Shows the file in `directory`, as show_nameless() does. \pre all parts were written. Errors:
  /// of that, and those of writing.
  Status publish(int directory, bool was_hit);

 private:
  ExtentDraft(Fd file, ExtentInfo info, std::uint64_t part_bytes, const SealKey* key);
  std::uint64_t offset_of(std::uint64_t part) const noexcept {
    return kHeaderBytes + part * part_bytes_;
  }

  const Fd file_;
  const ExtentInfo info_;
  const std::uint64_t part_bytes_;
  HeaderDraft header_;
};

}  // namespace headrace::tier
