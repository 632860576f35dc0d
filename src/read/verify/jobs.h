#pragma once
/// \file
/// What `verify` reads at a time: whole objects, runs of blocks, single blocks.
///
/// Place: verify.cc plans, worker.cc carries out.
///
/// Threads: values.
#include <cstdint>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"

namespace headrace::detail {

struct VerifyObject {
  std::string_view key;
  std::string_view etag;
  std::uint64_t size_bytes = 0;
  std::string_view hashes;  ///< Stored digests.
};

/// What a worker does at a time.
struct VerifyJob {
  enum class Kind : std::uint8_t {
    kObject,  ///< The object from end to end, with the blocks that lie in it, in order.
    kBlocks,  ///< Blocks that lie in one object, in order; nothing between them.
    kApart,   ///< One block by its extents.
  };
  VerifyObject object;
  Kind kind = Kind::kObject;
  std::uint32_t first_block = 0;
  std::uint32_t end_block = 0;
};

/// The jobs of a dataset: one a block; one an object, its blocks included, where it has stored
/// digests and its blocks lie in it one after the other.
std::vector<VerifyJob> plan_verify(const Dataset& dataset);

}  // namespace headrace::detail
