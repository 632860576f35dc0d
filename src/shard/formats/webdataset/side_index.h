#pragma once
/// \file
/// Reads the index files of others that lie beside tars.
///
/// Threads: the calling one.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headrace/range_fetcher.h"
#include "shard/dataset/build.h"

namespace headrace::detail {

/// For each object whose index is there, has bytes and at most `most_bytes`: `take` gets the
/// object's place and the index, in any order. `key_of` names the index of an object; "": it has
/// none. Errors: those of the store. \pre nothing is pending in `fetcher`.
Status read_side_indexes(const BuildContext& context, const std::vector<ObjectInfo>& objects,
                         RangeFetcher& fetcher, std::uint64_t most_bytes,
                         const std::function<std::string(const std::string& key)>& key_of,
                         const std::function<void(std::size_t, std::span<const std::byte>)>& take);

}  // namespace headrace::detail
