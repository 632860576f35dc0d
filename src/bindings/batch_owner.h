#pragma once
/// \file
/// What keeps the memory of a batch alive: numpy and Arrow arrays over it share one owner.
///
/// Threads: an owner may be dropped on any thread, without the GIL.
#include <cstdint>
#include <memory>

#include "bind.h"
#include "headrace/loader.h"
#include "process.h"

namespace headrace {

/// In a forked child the batch leaks: its memory is the parent's.
class BatchOwner {
 public:
  explicit BatchOwner(std::unique_ptr<Batch> batch) : batch_(std::move(batch)) {}
  BatchOwner(const BatchOwner&) = delete;
  BatchOwner& operator=(const BatchOwner&) = delete;
  ~BatchOwner() {
    if (generation_ != fork_generation()) static_cast<void>(batch_.release());
  }
  const Batch& batch() const noexcept { return *batch_; }

 private:
  std::unique_ptr<Batch> batch_;
  const std::uint32_t generation_ = fork_generation();
};

using SharedBatch = std::shared_ptr<const BatchOwner>;

/// A Python object that shares the ownership, as numpy arrays want it.
inline nb::capsule make_capsule(SharedBatch batch) {
  return nb::capsule(new SharedBatch(std::move(batch)),
                     [](void* p) noexcept { delete static_cast<SharedBatch*>(p); });
}

}  // namespace headrace
