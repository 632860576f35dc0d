// The end of a slice and the deadline of a read have the same code. The latter comes back at once
// on every call, and before the slice is over: that is how they are told apart.
#include "headrace/loader.h"

namespace headrace {

Result<std::unique_ptr<Batch>> next_batch(Loader& loader, const Pause& pause,
                                          std::chrono::milliseconds starved_limit) {
  std::chrono::milliseconds starved{0};
  while (true) {
    const TimePoint until = system_clock().now() + kPauseSlice;
    auto batch = loader.next(until);
    const bool is_slice_end =
        !batch && batch.error().code() == Code::kDeadline && system_clock().now() >= until;
    if (!is_slice_end) return batch;
    if (pause) pause();
    starved = loader.is_starved() ? starved + kPauseSlice : std::chrono::milliseconds(0);
    if (starved > std::chrono::milliseconds(0) && starved >= starved_limit) {
      return Status(Code::kExhausted,
                    "the batches (or arrays of them) that the training loop keeps hold all of "
                    "memory=: copy what is kept, or raise memory");
    }
  }
}

}  // namespace headrace
