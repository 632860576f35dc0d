#pragma once
/// \file
/// The `index.json` beside shards that only it can read: whose it is, and whether it is one. Pure.
///
/// Threads: functions.
#include <cstdint>
#include <string_view>

#include "shard/dataset/format_driver.h"

namespace headrace::detail {

inline constexpr std::string_view kIndexJsonName = "index.json";
/// What is read and parsed as a whole.
inline constexpr std::uint64_t kMostIndexJsonBytes = std::uint64_t{64} << 20;

/// The format that an `index.json` belongs to, judged by its top-level lists; nullptr: of none.
const FormatDriver* owner_of_index_json(std::string_view json);
/// The same by the first bytes of a document; nullptr when no such name is in them.
const FormatDriver* owner_of_index_json_head(std::string_view head) noexcept;

/// kCorrupt when `json`, the index.json of a dataset, is no JSON: the message says what it is
/// instead and what to do. ok for any JSON.
Status check_index_json(const Store& store, std::string_view json);

}  // namespace headrace::detail
