#include "io/read_budget.h"

#include <algorithm>

namespace headrace::io {

ReadBudget::ReadBudget(std::uint64_t most_bytes) {
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
  MutexLock lock(mutex_);
  arrivals_.add(completion, completion.length_bytes, /*was_held=*/false);
  room_.look(arrivals_, completion.finished);
}

std::uint64_t ReadBudget::bytes() const {
  MutexLock lock(mutex_);
  return room_.bytes();
}

}  // namespace headrace::io
