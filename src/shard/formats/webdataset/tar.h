#pragma once
/// \file
/// Members of a tar archive (v7, ustar, GNU, pax), one at a time, from bytes in memory. Pure;
/// nothing is allocated.
///
/// Place: the scan of webdataset/ builds indexes with it, cut() finds the members of a sample with
/// it.
///
/// Threads: any; functions and values.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "headrace/status.h"

namespace headrace::detail {

inline constexpr std::uint64_t kTarBlockBytes = 512;
/// No tar is larger: keeps sums of offsets from overflowing.
inline constexpr std::uint64_t kMostTarBytes = std::uint64_t{1} << 62;
/// Longest GNU long name or pax header that is read; PATH_MAX is 4 KiB, xattrs in pax headers may
/// take 64 KiB each.
inline constexpr std::uint64_t kMostTarExtensionBytes = std::uint64_t{1} << 20;

/// Room for a ustar name, which is stored in two fields: prefix (155), '/', name (100).
using TarNameBuffer = std::array<char, 256>;

/// The ustar name of the header block at `header`: into `buffer` when it is in two fields, else
/// into the block. \pre header.size() >= kTarBlockBytes
std::string_view ustar_name(std::span<const std::byte> header, TarNameBuffer& buffer) noexcept;

/// Which of a member's facts global pax headers (type g) set: a record without a value takes the
/// setting back.
struct PaxGlobals {
  std::optional<bool> sets_name;
  std::optional<bool> sets_size;
};

/// One member. Offsets count from the start of the bytes that were parsed, which is the start of
/// the member's first header (its extension headers belong to it).
struct TarMember {
  std::string_view name;  ///< Into the bytes, or into the TarNameBuffer when is_name_joined.
  bool is_name_joined = false;
  bool is_regular = false;
  std::uint64_t data_begin = 0;
  std::uint64_t data_bytes = 0;  ///< 0 for members that carry none.
  std::uint64_t end = 0;         ///< Start of the next member: data end rounded up to a block.
  /// What a global pax header before this member sets for it and all members behind it.
  PaxGlobals globals;
  /// What the member takes from a global header, if one further up sets it: it says neither itself.
  bool has_own_name = false;
  bool has_own_size = false;
};

enum class TarStep : std::uint8_t {
  kMember,     ///< `member` is filled.
  kZeroBlock,  ///< A block of zeros instead of a header.
  kNeedMore,   ///< The headers go on past the bytes; `needed_bytes` from the same start will do (or
               ///< bring the next demand).
};

struct TarResult {
  TarStep step = TarStep::kNeedMore;
  std::uint64_t needed_bytes = 0;
  TarMember member;
};

/// Parses the member whose first header is at the start of `bytes`. Its data need not be in them.
/// A global pax header among its headers holds for it; those further up are the caller's to watch
/// (TarMember::globals). Errors: kCorrupt (checksum, numbers, pax records), kUnsupported (sparse
/// members, extension headers above kMostTarExtensionBytes).
Result<TarResult> parse_tar_member(std::span<const std::byte> bytes, TarNameBuffer& buffer);

}  // namespace headrace::detail
