#pragma once
/// \file
/// Uses the indexes of Megatron Energon that lie beside tars (NAME.tar.idx), after a look at some
/// of their samples.
///
/// Such an index says where samples begin, not which fields they have. It is believed where all the
/// samples that are looked at, of all tars, have the same fields.
///
/// Threads: the calling one.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shard/dataset/build.h"

namespace headrace::detail {

/// Begin of each sample and the end of the last, of a tar of `size_bytes`; nothing when `index` is
/// none of it. Pure.
std::optional<std::vector<std::uint64_t>> parse_energon_index(std::span<const std::byte> index,
                                                              std::uint64_t size_bytes);

struct EnergonIndexes {
  /// Of each object; nothing where there is none that is right.
  std::vector<std::optional<std::vector<std::uint64_t>>> bounds;
  std::vector<std::string> suffixes;  ///< Of every sample that was looked at, in lower case.
};

/// Reads the indexes beside `objects` and 64 samples in all, at least four of each tar. Errors:
/// those of the store.
Result<EnergonIndexes> find_energon_indexes(const BuildContext& context,
                                            const std::vector<ObjectInfo>& objects);

}  // namespace headrace::detail
