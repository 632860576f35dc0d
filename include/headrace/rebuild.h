#pragma once
/// \file
/// Making a lost index.json of a dataset anew.
///
/// Place: src/shard/formats/mds/.
///
/// Threads: the calling one.
#include <string>

#include "headrace/dataset.h"

namespace headrace {

/// Makes the index.json of the MDS shards right below the root of `store` (of options.keys, if any)
/// from what they say of themselves, and returns its text; writes nothing. Reads the front of plain
/// shards, and the whole of those that are compressed or list hashes. Memory: one shard besides the
/// pool's. Errors: kInvalidArgument (there is a sound one), kNotFound (no shards, or one is missing
/// among the numbers of the others), kCorrupt (a shard is not whole), kUnsupported (a shard that
/// does not name its columns), those of the store.
Result<std::string> rebuild_mds_index(Store& store, SlabPool& pool, const DatasetOptions& options,
                                      const CallOptions& call = {});

}  // namespace headrace
