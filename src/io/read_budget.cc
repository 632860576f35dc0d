#include "io/read_budget.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "headrace/log.h"

namespace headrace::io {

ReadBudget::ReadBudget(std::uint64_t most_bytes) : ReadBudget(most_bytes, Owner{}) {}

ReadBudget::ReadBudget(std::uint64_t most_bytes, Owner owner) : owner_(std::move(owner)) {
  room_.begin(0, std::min(kFirstBytes, most_bytes), most_bytes);
}

bool ReadBudget::try_take(std::uint64_t size_bytes, bool is_alone) {
  MutexLock lock(mutex_);
  if (!is_alone && held_bytes_ + size_bytes > room_.bytes()) {
    room_.on_refused();
    return false;
  }
  held_bytes_ += size_bytes;
  return true;
}

void ReadBudget::give_back(std::uint64_t size_bytes) {
  MutexLock lock(mutex_);
  held_bytes_ -= size_bytes;
}

void ReadBudget::on_wait() {
  MutexLock lock(mutex_);
  room_.on_wait();
}

void ReadBudget::on_end(const Completion& completion) {
  {
    MutexLock lock(mutex_);
    arrivals_.add(completion, completion.length_bytes, /*was_held=*/false);
    room_.look(arrivals_, completion.finished);
    if (has_said_short_ || !room_.is_short()) return;
    has_said_short_ = true;
  }
  say_short();
}

void ReadBudget::say_short() const {
  if (owner_.subject.empty() || !process_log().wants(LogLevel::kWarning)) return;
  process_log().write(LogLevel::kWarning, "store",
                      owner_.subject + ": its memory of " + in_mib(owner_.memory_bytes) +
                          " keeps reading from filling the pipe to the store; " +
                          in_mib(2 * owner_.memory_bytes) +
                          " would allow twice as much (said once): see docs/sizing.md#other-reads");
}

std::uint64_t ReadBudget::bytes() const {
  MutexLock lock(mutex_);
  return room_.bytes();
}

}  // namespace headrace::io
