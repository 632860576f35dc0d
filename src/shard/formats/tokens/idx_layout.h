#pragma once
/// \file
/// Which `.idx` files an index of tokens was made with: text in the index, so that another `.idx`
/// makes another fingerprint and an index that is stale. Pure.
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// The key of the `.idx` beside a `.bin`. \pre key ends with ".bin".
std::string idx_key(std::string_view key);

/// Empty when there is none.
std::string format_idx_layout(const std::vector<IndexSource>& files);
/// Errors: kCorrupt.
Result<std::vector<IndexSource>> parse_idx_layout(std::string_view text);

}  // namespace headrace::detail
