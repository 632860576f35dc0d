#pragma once
/// \file
/// Whether a store has what was sent to it.
#include <cstdint>
#include <string>

#include "headrace/checkpoint.h"

namespace headrace::checkpoint {

/// Compares the object with the sum of what was sent, as `check` says; removes one that differs.
/// Errors: kCorrupt, those of a request.
Status check_written(StoreClient& client, const std::string& key, const std::string& etag,
                     std::uint64_t size_bytes, std::uint32_t crc32c, WrittenCheck check,
                     const Pause& pause);

}  // namespace headrace::checkpoint
