#pragma once
/// \file
/// ValueCache: values that were made of the objects of a store (pixels of JPEGs), kept in the cache
/// directory that the store is read through.
///
/// Place: src/tier/. The loader asks it for decoded values before it decodes them.
/// docs/design/0059.
///
/// Threads: every function from any thread.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/cache.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

/// Values of one size that were made of the same bytes in the same way, numbered from 0.
struct ValueSeries {
  /// Key of an object that they were made of, "#" and what they are: "train/0.mds#image".
  std::string_view key;
  /// All that decides what they are besides: versions, ranges, how they were made.
  std::string_view version;
  std::uint64_t value_bytes = 0;  ///< > 0
  std::uint32_t count = 0;

  /// From one to the next, where they are kept: whole pages.
  std::uint64_t stride_bytes() const noexcept { return (value_bytes + 4095) / 4096 * 4096; }
  /// Of all, as ForeseenRead::length_bytes: a store whose reads go through the same cache takes
  /// `key` and `version` for key and ETag there.
  std::uint64_t length_bytes() const noexcept { return stride_bytes() * count; }
};

class ValueCache {
 public:
  /// What is incomplete is given up.
  virtual ~ValueCache() = default;
  ValueCache(const ValueCache&) = delete;
  ValueCache& operator=(const ValueCache&) = delete;

  /// Bytes of files that the cache may hold in all.
  virtual std::uint64_t capacity_bytes() const = 0;
  /// Fills `out` (value_bytes) with a value, proved by its sum. False: it is not there, or was
  /// damaged; `out` is then unspecified. Blocks for the disk.
  virtual bool read(const ValueSeries& series, std::uint32_t index, std::span<std::byte> out) = 0;
  /// Keeps a copy of a value when there is time; leaves it out where there is no memory or no room.
  /// It is found once those around it were kept, too, or after settle(). Does not wait for the
  /// disk.
  virtual void keep(const ValueSeries& series, std::uint32_t index,
                    std::span<const std::byte> value) = 0;
  /// No more values are to come of those series of which some were kept here.
  virtual void settle() = 0;

 protected:
  ValueCache() = default;
};

/// Values of the objects of `store`, which is not kept, in the directory of `cache`. Errors:
/// kDenied (it is encrypted, and `cache` was opened without the key).
Result<std::shared_ptr<ValueCache>> open_value_cache(std::shared_ptr<Cache> cache,
                                                     const Store& store);

/// Of several stores as one (headrace/router.h): those of the object "<i>/<key>" lie in caches[i]
/// as those of `key`; nullptr: they are not kept.
std::shared_ptr<ValueCache> route_value_caches(std::vector<std::shared_ptr<ValueCache>> caches);

}  // namespace headrace
