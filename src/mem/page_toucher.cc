// Invariants:
// - What lies in queue_ or piece_ is mapped: forget() takes it out before it is unmapped.
// - The kernel is asked for one piece at a time and without the lock, so that forget() never waits
//   for more, and page faults of others, who share the kernel's lock of the address space, neither.
// - Nothing is ever written: whoever owns the memory may write to it at the same time.
#include "mem/page_toucher.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/start_thread.h"
#include "mem/size_class.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace headrace::mem {
namespace {

/// False where the kernel does not know how.
bool populate(std::span<std::byte> memory) noexcept {
  while (::madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) != 0) {
    if (errno == EINVAL) return false;
    if (errno != EINTR) break;  // No memory: the first write will tell.
  }
  return true;
}

}  // namespace

void PageToucher::end() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    has_ended_ = true;
    queue_.clear();
    thread = std::move(thread_);
  }
  wake_.notify_one();
  if (thread.joinable()) thread.join();
}

void PageToucher::touch(std::span<std::byte> memory) {
  if (memory.empty()) return;
  MutexLock lock(mutex_);
  if (has_ended_) return;
  if (!thread_.joinable()) {
    if (!start_thread(thread_, [this] { run(); })) {
      has_ended_ = true;
      return;
    }
    pthread_setname_np(thread_.native_handle(), "hr-touch");
  }
  queue_.push_back(memory);
  wake_.notify_one();
}

void PageToucher::forget(const std::byte* begin, std::size_t size_bytes) {
  const auto lies_there = [&](std::span<std::byte> memory) {
    return memory.data() < begin + size_bytes && begin < memory.data() + memory.size();
  };
  MutexLock lock(mutex_);
  std::erase_if(queue_, lies_there);
  while (!piece_.empty() && lies_there(piece_)) lock.wait(touched_);
}

std::span<std::byte> PageToucher::take_piece() {
  if (queue_.empty()) return {};
  std::span<std::byte>& memory = queue_.front();
  // Pieces end where huge pages do.
  const auto end = reinterpret_cast<std::uintptr_t>(memory.data() + memory.size());
  const std::size_t size = std::min(memory.size(), (end - 1) % kHugePageBytes + 1);
  const std::span<std::byte> piece = memory.last(size);
  memory = memory.first(memory.size() - size);
  if (memory.empty()) queue_.pop_front();
  return piece;
}

void PageToucher::run() {
  MutexLock lock(mutex_);
  while (!has_ended_) {
    piece_ = take_piece();
    if (piece_.empty()) {
      lock.wait(wake_);
      continue;
    }
    const std::span<std::byte> piece = piece_;
    lock.unlock();
    const bool can = populate(piece);
    lock.lock();
    piece_ = {};
    touched_.notify_all();
    if (!can) has_ended_ = true;
  }
}

}  // namespace headrace::mem
