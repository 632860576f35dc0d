#pragma once
/// \file
/// A batch's way into another process: numbers that say where its parts lie in memory that both
/// map, and the batch that is made of them there.
///
/// Place: src/feed/. The loader's process shares its batches (Loader::share_batches()) and sends
/// file and place; it must not use the memory again before the other has called end().
///
/// Threads: one at a time; batches may be destroyed on any.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/loader.h"

namespace headrace {

/// Where the batch lies in the file of its memory, for BatchMapper; empty: other processes cannot
/// map it.
std::vector<std::int64_t> place_of(const Batch& batch);

/// Makes batches of one loader in a process that is not the loader's. What is written to them is
/// seen by nobody else.
class BatchMapper {
 public:
  /// `schema`: the loader's.
  static std::unique_ptr<BatchMapper> create(BatchSchema schema);
  virtual ~BatchMapper() = default;

  /// A batch over the file's memory, which may be closed. Its BatchColumn::column point to schema()
  /// of the mapper. `place`: place_of(). Errors: kInternal (the place of a batch with other
  /// columns), kExhausted (the system maps no more).
  virtual Result<std::unique_ptr<Batch>> open(int fd, std::span<const std::int64_t> place) = 0;

  /// Of the last batch: the other process may use its memory again after this. Where the batch is
  /// still held, it becomes a copy of its own.
  virtual void end() = 0;

  virtual const BatchSchema& schema() const noexcept = 0;
};

}  // namespace headrace
