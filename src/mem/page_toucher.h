#pragma once
/// \file
/// Pages for memory that was mapped just now, from a thread of its own, before somebody writes
/// there.
///
/// Why: the first write to a page costs 0.15 to 2.5 CPU s/GB (docs/design/0001-memory.md). Where
/// the thread that receives from the network pays that, it is busy with nothing else while a pool
/// grows, which is just when a pipe should be filled. Bytes come one round trip after their memory
/// was taken: meanwhile another processor can do it.
///
/// Threads: any.
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <span>
#include <thread>

#include "base/mutex.h"

namespace headrace::mem {

class PageToucher {
 public:
  /// Takes no thread before the first touch().
  PageToucher() = default;
  ~PageToucher() { end(); }
  PageToucher(const PageToucher&) = delete;
  PageToucher& operator=(const PageToucher&) = delete;

  /// Gives `memory` its pages soon, the last first: a writer who begins at once comes from the
  /// other end. What is written there before, meanwhile or later stays. Never fails: without a
  /// thread, or on a kernel that cannot do it (before 5.14), pages come with the first write, as
  /// ever.
  void touch(std::span<std::byte> memory) HEADRACE_EXCLUDES(mutex_);

  /// To be called before memory given to touch() is unmapped or gives its pages back: nothing of
  /// [begin, begin + size_bytes) is touched after it returns. Waits for one piece of 2 MiB at most.
  void forget(const std::byte* begin, std::size_t size_bytes) HEADRACE_EXCLUDES(mutex_);

  /// Ends the thread; what has no pages yet gets none, now or later.
  void end() HEADRACE_EXCLUDES(mutex_);

 private:
  void run() HEADRACE_EXCLUDES(mutex_);
  /// The next piece; empty where there is none.
  std::span<std::byte> take_piece() HEADRACE_REQUIRES(mutex_);

  Mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable touched_;
  std::deque<std::span<std::byte>> queue_ HEADRACE_GUARDED_BY(mutex_);
  std::span<std::byte> piece_ HEADRACE_GUARDED_BY(mutex_);  ///< Being touched now.
  bool has_ended_ HEADRACE_GUARDED_BY(mutex_) = false;  ///< Or never began, or is of no use here.
  std::thread thread_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::mem
