#pragma once
/// \file
/// One more call that is under way, for as long as this lives.
#include <atomic>

namespace headrace::io {

class CallCount {
 public:
  explicit CallCount(std::atomic<int>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  ~CallCount() { count_.fetch_sub(1, std::memory_order_relaxed); }
  CallCount(const CallCount&) = delete;
  CallCount& operator=(const CallCount&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace headrace::io
