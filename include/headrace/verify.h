#pragma once
/// \file
/// Verify: reads a dataset from end to end and checks all that can be checked: lengths and versions
/// of objects, stored digests, checksums of records, offsets, the fit of every sample. And digests
/// of any objects, for manifests.
///
/// Place: src/read/. CPU-bound at the speed of the checksum; reads run ahead of it.
///
/// Threads: the functions block and run their own workers; progress is called from the calling
/// thread.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/memory.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

struct VerifyOptions {
  /// digest_objects(): digests to compute of every object, names as hashlib has them ("sha256"), or
  /// xxh32 xxh64 xxh128 xxh3_64 xxh3_128.
  std::vector<std::string> digests = {};
  /// 0: number of cores, on remote stores 64. Fewer when the pool is small.
  std::uint32_t worker_count = 0;
  std::uint32_t most_problems = 1000;  ///< Problems kept; all are counted.
  /// (bytes read, bytes in all), about ten times a second.
  std::function<void(std::uint64_t, std::uint64_t)> progress = {};
};

struct VerifyProblem {
  std::string key;             ///< Object, relative to the root.
  std::int64_t position = -1;  ///< Dataset position of the sample; -1: the object as a whole.
  /// Samples from `position` on that it concerns: 1, or more where a block cannot be read; 0 for an
  /// object as a whole.
  std::uint64_t sample_count = 0;
  Code code = Code::kCorrupt;
  std::string message;
};

struct ObjectDigests {
  std::string key;
  std::uint64_t size_bytes = 0;
  std::vector<std::string> hex;  ///< In the order of VerifyOptions::digests.
};

struct VerifyReport {
  std::uint64_t object_count = 0;  ///< Read from end to end.
  std::uint64_t sample_count = 0;  ///< Cut without a complaint.
  std::uint64_t read_bytes = 0;
  std::uint64_t stored_digest_count = 0;  ///< Digests of the format that were compared.
  /// Reads made again because what came made no sense (SecondLook): those that then came right are
  /// no problems.
  std::uint64_t second_read_count = 0;
  std::uint64_t problem_count = 0;
  std::vector<VerifyProblem> problems;  ///< In order of dataset position, then key.
  std::vector<ObjectDigests> objects;   ///< Of digest_objects(), in order of key.
};

/// Checks every sample and every stored digest of `dataset`; what is wrong stands in the report,
/// and the rest is checked all the same. Errors: kInvalidArgument (unknown digest), kExhausted (the
/// pool is too small for the largest block: names both), kCancelled, kDeadline. Those of the store
/// for single objects stand in the report.
Result<VerifyReport> verify_dataset(const Dataset& dataset, Store& store, SlabPool& pool,
                                    const VerifyOptions& options, const CallOptions& call = {});

/// Compares the index that lies beside a dataset with that of `fresh`, which was opened without it:
/// every byte but the hint on the size of blocks. No stored index is no error. Errors: kCorrupt
/// (not an index, a checksum), kUnsupported (of another version), kChanged (describes something
/// else), those of the store.
Status compare_stored_index(const Dataset& fresh, Store& store, SlabPool& pool,
                            const CallOptions& call = {});

/// Reads `objects` (keys relative to the root of `store`; an empty etag reads any version) and
/// computes their digests. Errors also: kInvalidArgument (unknown digest).
Result<VerifyReport> digest_objects(std::span<const ObjectInfo> objects, Store& store,
                                    SlabPool& pool, const VerifyOptions& options,
                                    const CallOptions& call = {});

}  // namespace headrace
