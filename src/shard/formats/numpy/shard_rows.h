#pragma once
/// \file
/// What the layouts of `.npz` datasets have in common: a row a shard, with a value a column. Pure.
#include <simdjson.h>

#include <cstddef>
#include <functional>
#include <string_view>

#include "headrace/status.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// A value of the text. `shard`, `column`: its place. False: it makes no sense there.
using TakeValue =
    std::function<bool(std::size_t shard, std::size_t column, simdjson::dom::element value)>;

/// Hands all values of {"NAME": [[value, ...], ...]} over, in order. Errors: kCorrupt (another
/// text, not a row for each shard or a value for each column of `index`, a value that is not
/// taken).
Status read_shard_rows(std::string_view text, std::string_view name, const IndexView& index,
                       const TakeValue& take);

/// kCorrupt: the values do not fit the objects.
Status bad_shard_rows(std::string_view name);

}  // namespace headrace::detail
