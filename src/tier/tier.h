#pragma once
/// \file
/// Tier: what cache_store asks of a cache, whatever that keeps extents in.
///
/// Threads: any. What begins with a handle's task ends with one: a tier outlives the handles on it.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "headrace/clock.h"
#include "headrace/memory.h"
#include "headrace/metrics.h"
#include "tier/extent_header.h"
#include "tier/pace.h"
#include "tier/plan_entries.h"
#include "tier/plan_file.h"

namespace headrace::tier {

class Tier {
 public:
  Tier() = default;
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;
  virtual ~Tier() = default;

  enum class Found {
    kNothing,  ///< It does not have it all, or not as it was.
    kAll,
    kTaken,    ///< It does not, and another node is fetching it: look again.
    kTooSlow,  ///< It has, or may have, but what is behind it has it sooner.
  };
  using Done = std::function<void(Found, std::uint64_t object_size_bytes)>;
  /// Fills `out` with the range of `wanted` and calls `done` once: inside this call or later, on
  /// any thread, but with no lock held. `out` is the tier's until then; its contents are
  /// unspecified unless all was found. To be called on run()'s threads.
  virtual void read(const ExtentInfo& wanted, std::span<std::byte> out, TimePoint deadline,
                    Done done) = 0;

  /// The right to fetch an extent; given back when it is destroyed, before the tier is.
  class Flight {
   public:
    Flight() = default;
    Flight(Tier& tier, const ExtentName& extent) : tier_(&tier), extent_(extent) {}
    Flight(Flight&& o) noexcept : tier_(std::exchange(o.tier_, nullptr)), extent_(o.extent_) {}
    Flight& operator=(Flight&& o) noexcept {
      std::swap(tier_, o.tier_);
      std::swap(extent_, o.extent_);
      return *this;
    }
    ~Flight() {
      if (tier_ != nullptr) tier_->end_flight(extent_);
    }
    explicit operator bool() const noexcept { return tier_ != nullptr; }

   private:
    Tier* tier_ = nullptr;
    ExtentName extent_;
  };
  /// Empty: somebody, in this process or elsewhere, is fetching it.
  virtual Flight begin_flight(const ExtentName& extent) = 0;
  /// Whether the flight is begun before the first look, which costs a journey; otherwise after a
  /// look in vain, and then it is looked again.
  virtual bool looks_in_flight() const noexcept = 0;

  /// Keeps `data`, which came from behind it, when there is time; leaves it out where there is no
  /// memory or no room for it. Never waits. The flight ends when others can find it. `slab`: what
  /// `data` lies in, where that may be held (Slab::hold()) rather than copied; or an empty one.
  virtual void keep(ExtentInfo info, std::span<const std::byte> data, Flight flight,
                    const Slab& slab) = 0;
  /// Whether it has all of a range, as far as it knows without looking at data.
  virtual bool holds(const ExtentName& range) = 0;
  /// Sees to it that what overlaps the range is not found again: it made no sense to a reader, and
  /// is kept anew.
  virtual void drop(const ExtentName& range) = 0;

  virtual bool wants_plans() const noexcept = 0;
  /// Tells all processes when a reader needs what. Null when it cannot be written, or nobody wants
  /// to know.
  virtual std::shared_ptr<OwnPlan> publish_plan(std::vector<PlanEntry> entries) = 0;

  /// Runs `task`, which may read() and asks nobody else, where that is allowed. False: too many
  /// wait.
  virtual bool run(ThreadPool::Task&& task) = 0;
  /// The same at `due`, surely. `name`: for hurry(); one task at a time has it.
  virtual void run_later(TimePoint due, const void* name, ThreadPool::Task task) = 0;
  /// What is to run later by this name runs as soon as may be.
  virtual void hurry(const void* name) = 0;

  /// To be told of reads of Pace::kLeastBytes and more.
  virtual Pace& pace() noexcept = 0;
  virtual Clock& clock() const noexcept = 0;
  /// Reads that name no version are kept from this length on.
  virtual std::uint64_t least_unnamed_bytes() const noexcept = 0;

  /// A read waits for what somebody else is fetching.
  virtual void note_wait() noexcept = 0;
  /// A read goes on to what is behind it.
  virtual void note_miss(std::uint64_t bytes) noexcept = 0;
  virtual void append_metrics(MetricList& out) const = 0;

 protected:
  virtual void end_flight(const ExtentName& extent) = 0;
};

}  // namespace headrace::tier
