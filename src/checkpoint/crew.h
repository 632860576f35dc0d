#pragma once
/// \file
/// run_crew(): the same work on a few threads, which ends for all of them with the first error, and
/// whose caller is asked meanwhile whether to go on.
///
/// Threads: a function; `work` runs on several at once.
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/start_thread.h"
#include "checkpoint/wait_slice.h"
#include "headrace/status.h"

namespace headrace::checkpoint {

/// \return the first error of `count` threads, when all have ended. With it, and where `pause`
/// throws, the others are told to stop.
inline Status run_crew(std::uint32_t count,
                       const std::function<Status(const std::stop_token&)>& work,
                       const Pause& pause) {
  struct {
    Mutex mutex;
    std::condition_variable ended;
    std::uint32_t running HEADRACE_GUARDED_BY(mutex) = 0;
    Status error HEADRACE_GUARDED_BY(mutex);
  } crew;
  {
    MutexLock lock(crew.mutex);
    crew.running = count;
  }
  std::vector<std::jthread> threads;  // Last: they use all of the above.
  start_threads(threads, count, [&](const std::stop_token& stop) {
    Status status = work(stop);
    {
      MutexLock lock(crew.mutex);
      if (crew.error.ok()) crew.error = std::move(status);
      --crew.running;
    }
    crew.ended.notify_all();
  });
  if (count > 0 && threads.empty()) return Status(Code::kExhausted, "no thread can be started");
  {
    MutexLock lock(crew.mutex);
    crew.running -= count - static_cast<std::uint32_t>(threads.size());
  }
  // All before one is waited for: it may wait for another.
  struct StopAll {
    std::vector<std::jthread>& threads;
    void operator()() const {
      for (std::jthread& thread : threads) thread.request_stop();
    }
    ~StopAll() { (*this)(); }
  } const stop_all{threads};
  MutexLock lock(crew.mutex);
  while (crew.running > 0) {
    wait_slice(lock, crew.ended, pause);
    if (!crew.error.ok()) stop_all();
  }
  return crew.error.clone();
}

}  // namespace headrace::checkpoint
