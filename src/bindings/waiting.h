#pragma once
/// \file
/// Waiting for the engine from a Python thread: without the GIL, in slices short enough that Ctrl-C
/// acts at once.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "bind.h"
#include "headrace/clock.h"
#include "process.h"

namespace headrace {

/// Longest time between two looks for signals; a person notices more than about 100 ms.
constexpr std::chrono::milliseconds kSignalSlice{50};

/// Runs Python's signal handlers; throws what they raise (KeyboardInterrupt).
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

/// End of a slice that starts now, at most `deadline`.
inline TimePoint slice_end(TimePoint deadline = TimePoint::max()) {
  return std::min(deadline, system_clock().now() + kSignalSlice);
}

/// Runs `work(stop)` on a thread of its own, without the GIL, and returns its result. When a signal
/// handler raises, asks `work` to stop, waits for its end and lets the exception out. For calls
/// that block in one piece (listing, opening). `tick` runs about every 50 ms in the calling thread,
/// for progress. \pre the GIL is held; `work` does not touch Python.
template <class Work, class Tick>
auto run_interruptible(Work&& work, Tick&& tick) {
  using Value = decltype(work(std::declval<std::stop_token>()));
  std::optional<Value> value;
  std::exception_ptr failure;  // Of memory, or a thread of its own: it belongs to the caller.
  std::mutex mutex;
  std::condition_variable finished;
  bool is_finished = false;
  std::jthread thread([&](std::stop_token stop) {
    std::optional<Value> result;
    std::exception_ptr raised;
    try {
      result.emplace(work(std::move(stop)));
    } catch (...) {
      raised = std::current_exception();
    }
    std::lock_guard lock(mutex);
    value = std::move(result);
    failure = std::move(raised);
    is_finished = true;
    finished.notify_one();
  });

  auto wait_slice = [&] {
    ReleaseGil release;
    std::unique_lock lock(mutex);
    return finished.wait_for(lock, kSignalSlice, [&] { return is_finished; });
  };
  try {
    while (!wait_slice()) {
      check_signals();
      tick();
    }
  } catch (...) {
    ReleaseGil release;
    thread.request_stop();
    thread.join();
    throw;
  }
  thread.join();
  if (failure) std::rethrow_exception(failure);
  return std::move(*value);
}

template <class Work>
auto run_interruptible(Work&& work) {
  return run_interruptible(std::forward<Work>(work), [] {});
}

/// Numbers that an engine thread reports, handed to a Python callable by the thread that waits.
class ProgressRelay {
 public:
  using Numbers = std::array<std::uint64_t, 3>;
  /// `callable` may be None: then nothing is reported. Must outlive this.
  explicit ProgressRelay(const nb::object& callable) : callable_(callable) {}
  /// Any thread.
  void store(const Numbers& numbers) {
    std::lock_guard lock(mutex_);
    numbers_ = numbers;
    is_new_ = true;
  }
  /// Calls the callable when there is news. \pre the GIL is held.
  void report() {
    Numbers numbers;
    {
      std::lock_guard lock(mutex_);
      if (!is_new_) return;
      is_new_ = false;
      numbers = numbers_;
    }
    if (!callable_.is_none()) callable_(numbers[0], numbers[1], numbers[2]);
  }

 private:
  const nb::object& callable_;
  std::mutex mutex_;
  Numbers numbers_{};
  bool is_new_ = false;
};

}  // namespace headrace
