#pragma once
/// \file
/// What a cache directory tells the log (headrace/log.h): that nothing is kept, and why, and that
/// it may lie on another disk than was meant. Reads go on, so nobody would else hear of it.
///
/// Threads: any.
#include <cstdint>
#include <string>

#include "headrace/status.h"

namespace headrace::tier {

/// The directory that it lies in was not there, and was made: perhaps a disk is not mounted.
void log_new_parent(const std::string& directory, const std::string& parent);

/// The disk has less free than has to stay free (CacheOptions::free_floor_bytes).
void log_full_disk(const std::string& directory, std::uint64_t free_bytes,
                   std::uint64_t floor_bytes);

/// The disk failed, and nothing is written for a while. Counted: a line for ten seconds.
void log_disk_failure(const std::string& directory, const Status& status);

}  // namespace headrace::tier
