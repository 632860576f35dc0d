#pragma once
/// \file
/// Coding of sample boundaries: long, mostly even sequences of offsets, in little room, any of them
/// found in O(1).
///
/// Place: the side index stores one sequence a shard (docs/formats.md, "Boundaries"). Pure.
///
/// A sequence of equal steps costs nothing but its reference. Any other is cut into groups of 128
/// values; a group is a straight line (base, slope) and the distance from it, bit-packed with the
/// width that the group needs.
///
/// Threads: BoundsWriter has one owner; BoundsView is immutable.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace headrace::detail {

class IndexPages;

inline constexpr std::uint64_t kBoundsGroup = 128;
inline constexpr std::uint64_t kNoGroups = ~std::uint64_t{0};
inline constexpr std::size_t kGroupRecordBytes = 24;
/// Zero bytes after the packed values, so that a value is always one load of 8 bytes.
inline constexpr std::size_t kPackedPadBytes = 8;

/// Where a sequence is. `first_group == kNoGroups`: value i is base + i * stride.
struct BoundsRef {
  std::uint64_t base = 0;
  std::uint64_t stride = 0;
  std::uint64_t first_group = kNoGroups;
};

/// Collects sequences. `groups` and `packed` are the two sections of the index.
class BoundsWriter {
 public:
  BoundsRef append(std::span<const std::uint64_t> values);
  const std::string& groups() const noexcept { return groups_; }
  /// Appends the padding; call once, last.
  std::string take_packed() {
    packed_.append(kPackedPadBytes, '\0');
    return std::move(packed_);
  }

 private:
  void append_group(std::span<const std::uint64_t> values);
  std::string groups_;
  std::string packed_;
};

/// Reads sequences from the two sections. Hostile contents give wrong values, never reads outside
/// the sections.
class BoundsView {
 public:
  BoundsView() = default;
  /// `pages`: where the sections are read, when they are not in memory; outlives the view.
  BoundsView(std::span<const std::byte> groups, std::span<const std::byte> packed,
             const IndexPages* pages = nullptr)
      : groups_(groups), packed_(packed), pages_(pages) {}
  /// Value `index` of the sequence; 0 when the sections do not hold it. Any, when the pages fail.
  std::uint64_t at(const BoundsRef& ref, std::uint64_t index) const noexcept;
  /// True when all groups of a sequence of `count` values exist.
  bool holds(const BoundsRef& ref, std::uint64_t count) const noexcept;

 private:
  std::span<const std::byte> groups_;
  std::span<const std::byte> packed_;
  const IndexPages* pages_ = nullptr;
};

}  // namespace headrace::detail
