#pragma once
/// \file
/// ExtentReader: fills memory with what a cache directory has of a range.
///
/// Threads: any; blocks for the disk.
#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/metrics.h"
#include "insight/counter.h"
#include "tier/cache_directory.h"
#include "tier/extent_name.h"
#include "tier/pace.h"
#include "tier/tier.h"

namespace headrace::tier {

class ExtentReader {
 public:
  /// Both outlive it. `pace`: whether the disk is asked at all.
  ExtentReader(CacheDirectory& directory, Pace& pace) : directory_(directory), pace_(pace) {}

  /// Fills `out` with the range. What cannot be read or proved is deleted, and then nothing was
  /// found.
  Tier::Found read(const ExtentName& range, std::span<std::byte> out,
                   std::uint64_t& object_size_bytes);

  void append_metrics(MetricList& out) const;

 private:
  /// \return whether all of it came, proved.
  bool read_one(const ExtentName& extent, std::uint64_t from_bytes, std::span<std::byte> out,
                std::uint64_t& object_size_bytes);
  static bool is_marked(int file) noexcept;
  void mark_hit(const ExtentName& extent) const;

  CacheDirectory& directory_;
  Pace& pace_;
  Counter hits_, hit_bytes_, passed_bytes_, corrupt_;
};

}  // namespace headrace::tier
