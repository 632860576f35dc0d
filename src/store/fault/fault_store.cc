// A fault changes what a completion says, when it comes and in which order, never whether it
// comes: each request that the inner store took completes exactly once. That is what code under
// test may rely on, and a fault that broke it would find bugs that no store has.
//
// Completions that are held back are given out when there are more than the limit, when nothing
// else is in flight (no other would come to push them out), or when the inner store had none in
// time. All handles share one Random, so that a seed gives the same faults for the same calls in
// the same order.
#include "store/fault/fault_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "insight/counter.h"

namespace headrace {
namespace {

/// Dice and counts of all handles.
struct Shared {
  explicit Shared(const FaultOptions& o) : options(o), random(o.seed) {}
  bool hits(double share) HEADRACE_EXCLUDES(mutex) {
    if (share <= 0) return false;
    MutexLock lock(mutex);
    return random.unit() < share;
  }
  std::uint64_t below(std::uint64_t bound) HEADRACE_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    return random.below(bound);
  }

  const FaultOptions options;
  Counter errors, call_errors, short_accepts, held_back, flips;
  Mutex mutex;
  Random random HEADRACE_GUARDED_BY(mutex);
};

class FaultHandle final : public FaultStore {
 public:
  FaultHandle(std::unique_ptr<Store> inner, std::shared_ptr<Shared> shared)
      : FaultStore(std::move(inner)), shared_(std::move(shared)) {}

  std::size_t submit(std::span<Request> requests) override {
    const bool is_short = !requests.empty() && shared_->hits(shared_->options.short_accept_share);
    // Under the lock, so that wait() never counts a request as in flight that is then refused: it
    // would sleep for it.
    MutexLock lock(mutex_);
    std::span<Request> offered = requests;
    if (is_short) {
      shared_->short_accepts.add();
      offered =
          requests.first(std::max(shared_->below(requests.size()), std::uint64_t{in_flight_ == 0}));
    }
    const std::size_t count = inner().submit(offered);
    in_flight_ += count;
    return count;
  }

  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    if (out.empty()) return inner().wait(out, until, stop);
    if (shared_->options.hold_back_count == 0) {
      const std::size_t count = inner().wait(out, until, stop);
      for (Completion& completion : out.first(count)) spoil(completion);
      subtract_in_flight(count);
      return count;
    }
    while (true) {
      const bool is_last = in_flight() == held_.size();
      if (!held_.empty() && (is_last || held_.size() > shared_->options.hold_back_count))
        return hand_out(out);
      std::array<Completion, 16> batch;
      const std::size_t count = inner().wait(batch, until, stop);
      for (Completion& completion : std::span(batch).first(count)) {
        spoil(completion);
        held_.push_back(std::move(completion));
      }
      if (count == 0) return hand_out(out);
      shared_->held_back.add(count);
    }
  }

  FaultCounts counts() const override {
    return {shared_->errors.value(), shared_->call_errors.value(), shared_->short_accepts.value(),
            shared_->held_back.value(), shared_->flips.value()};
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<FaultHandle>(std::move(handle), shared_));
  }
  Status before_call(std::string_view call, const std::string& key) override {
    if (!shared_->hits(shared_->options.call_error_share)) return {};
    shared_->call_errors.add();
    return Status(shared_->options.error_code,
                  std::string(call) + " " + object_url(key) + ": injected fault");
  }

  void spoil(Completion& completion) {
    flip(completion);
    if (!completion.status.ok() || !shared_->hits(shared_->options.error_share)) return;
    shared_->errors.add();
    completion.status = Status(shared_->options.error_code, "injected fault");
    completion.length_bytes = 0;
    completion.object_size_bytes = 0;
    completion.etag.clear();
    // A put's slab is spoiled as well: after the completion its contents are the caller's business
    // again.
    const std::span<std::byte> bytes = completion.slab.bytes();
    if (shared_->options.spoil_failed_slabs && !bytes.empty())
      std::memset(bytes.data(), 0xdb, bytes.size());
  }

  void flip(Completion& completion) {
    const bool has_bytes = completion.status.ok() && completion.length_bytes > 0;
    if (!has_bytes || !shared_->hits(shared_->options.flip_share)) return;
    shared_->flips.add();
    const std::uint64_t bit = shared_->below(completion.length_bytes * 8);
    completion.slab.bytes()[bit / 8] ^= std::byte{1} << (bit % 8);
  }

  std::size_t hand_out(std::span<Completion> out) {
    const std::size_t count = std::min(out.size(), held_.size());
    for (std::size_t i = 0; i < count; ++i) {
      std::swap(held_[shared_->below(held_.size())], held_.back());
      out[i] = std::move(held_.back());
      held_.pop_back();
    }
    subtract_in_flight(count);
    return count;
  }

  std::size_t in_flight() HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return in_flight_;
  }
  void subtract_in_flight(std::size_t count) HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    in_flight_ -= count;
  }

  const std::shared_ptr<Shared> shared_;
  std::vector<Completion> held_;  // by the thread in wait() only
  Mutex mutex_;
  std::size_t in_flight_ HEADRACE_GUARDED_BY(mutex_) = 0;  // accepted and not handed out
};

}  // namespace

std::unique_ptr<FaultStore> FaultStore::create(std::unique_ptr<Store> inner,
                                               const FaultOptions& options) {
  return std::make_unique<FaultHandle>(std::move(inner), std::make_shared<Shared>(options));
}

}  // namespace headrace
