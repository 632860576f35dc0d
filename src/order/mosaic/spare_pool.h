#pragma once
/// \file
/// Things that are costly to make, kept for who needs one next.
///
/// Place: src/order/mosaic. Any thread.
#include <memory>
#include <mutex>
#include <vector>

namespace headrace::mosaic {

template <class T>
class SparePool {
 public:
  /// One that was given back, else a new one.
  std::shared_ptr<T> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        std::shared_ptr<T> last = std::move(spare_.back());
        spare_.pop_back();
        return last;
      }
    }
    return std::make_shared<T>();
  }
  void give(std::shared_ptr<T> one) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(one));
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<T>> spare_;
};

}  // namespace headrace::mosaic
