#pragma once
/// \file
/// Uploads as Headrace makes them of Azure's uncommitted blocks. Azure has no uploads: blocks wait
/// under a blob's name until a list commits some of them, and those left out are discarded. So an
/// upload's id is ours, and it is the start of the ids of its blocks.
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "headrace/status.h"

namespace headrace::azure {

/// 24 hexadecimal digits, from the kernel's random numbers.
Result<std::string> new_upload_id();
bool is_upload_id(std::string_view text) noexcept;

/// Id of a block as requests and block lists carry it: base64 of "<upload id>-00042". All ids have
/// the same length, as Azure demands of the blocks of one blob.
using BlockId = std::array<char, 40>;
/// \pre is_upload_id(upload_id), part_number < 100000.
BlockId block_id(std::string_view upload_id, std::uint32_t part_number);
/// Part number of a block of this upload; nullopt for blocks of others.
std::optional<std::uint32_t> part_of_block(std::string_view block_id, std::string_view upload_id);

/// Uploads that this process has aborted: their blocks stay at Azure until a commit or a week
/// passes, but nothing is to be added or committed any more. Remembers the last 1024.
///
/// Threads: any.
class AbortedUploads {
 public:
  void add(std::string_view upload_id) HEADRACE_EXCLUDES(mutex_);
  bool contains(std::string_view upload_id) const HEADRACE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::deque<std::string> ids_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::azure
