#pragma once
/// \file
/// DiskValues: values that were made of objects (ValueSeries), kept as extents of a cache's
/// directory. Values of a series that follow each other share a file, up to kGroupValues; a file is
/// shown when all of them are there, or in parts by settle().
///
/// Nothing of it waits in memory but what is about to be written: values go to their places of
/// files that have no name yet, in the order in which they come.
///
/// Threads: any.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "headrace/value_cache.h"
#include "tier/extent_header.h"

namespace headrace::tier {

class DiskCache;

class DiskValues final : public ValueCache {
 public:
  static constexpr std::uint32_t kGroupValues = kMostParts;
  /// Files that may be open at once; values that would need more are left out.
  static constexpr std::size_t kMostGroups = 256;

  /// `origin`, `url`: of the store whose objects they are made of.
  DiskValues(std::shared_ptr<DiskCache> cache, std::string origin, std::string url);
  ~DiskValues() override;

  std::uint64_t capacity_bytes() const override;
  bool read(const ValueSeries& series, std::uint32_t index, std::span<std::byte> out) override;
  void keep(const ValueSeries& series, std::uint32_t index,
            std::span<const std::byte> value) override;
  void settle() override;

 private:
  class Group;
  using GroupName = std::pair<ObjectId, std::uint32_t>;  ///< And its number in the series.

  std::string url_of(const ValueSeries& series) const;
  ObjectId object_of(const ValueSeries& series) const;
  /// Null where too many are open.
  std::shared_ptr<Group> group_of(const ValueSeries& series, std::uint32_t number);

  const std::shared_ptr<DiskCache> cache_;
  const std::string origin_, url_;
  Mutex mutex_;
  std::map<GroupName, std::shared_ptr<Group>> groups_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::tier
