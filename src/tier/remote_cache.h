#pragma once
/// \file
/// RemoteCache: a place outside this node that keeps extents by identity: memcached, a store.
///
/// Whatever goes wrong there is an outcome, never an error: whoever asks goes on to the next place.
///
/// Threads: get() and put() from any thread. Their ends come on a thread of the engine's own, with
/// no lock held.
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/clock.h"
#include "headrace/memory.h"
#include "tier/extent_header.h"
#include "tier/remote_header.h"

namespace headrace::tier {

class RemoteCache {
 public:
  /// So long may fetching what was claimed take before others claim it.
  static constexpr std::chrono::seconds kClaimLife{3};

  enum class Outcome {
    kDone,
    kMissing,
    kClaimed,  ///< Missing, and whoever asked is to bring it: it puts it or calls release().
    kTaken,    ///< Missing, and somebody else has claimed it.
    kResting,  ///< Not asked: it failed a moment ago.
    kCorrupt,  ///< What is there is not what it should be.
    kRefused,  ///< A put that it does not take: too large, or no room.
    kFailed,   ///< No answer in time, or one that makes no sense.
  };
  /// `object_size_bytes`: of a get that is done.
  using Done = std::function<void(Outcome, std::uint64_t object_size_bytes)>;

  struct Get {
    ExtentInfo extent;         ///< Its object's size does not matter.
    std::span<std::byte> out;  ///< The engine's until the end; filled where the outcome is kDone.
    TimePoint deadline = TimePoint::max();
    /// Whether what is missing is claimed, where the engine knows claims. A claim that nobody
    /// releases ends by itself in kClaimLife.
    bool claims = false;
    Done done;
  };
  /// Header and bytes of each part (cut by part_bytes()), one after the other, in the slab.
  struct Put {
    ExtentInfo extent;
    Slab slab;
    Done done;  ///< Called when the slab has been given back.
  };

  RemoteCache() = default;
  RemoteCache(const RemoteCache&) = delete;
  RemoteCache& operator=(const RemoteCache&) = delete;
  /// Ends what is under way, in seconds at most; each get and put has its end before.
  virtual ~RemoteCache() = default;

  /// Never blocks; exactly one end.
  virtual void get(Get&& get) = 0;
  virtual void put(Put&& put) = 0;
  /// Gives up a claim, so that others need not wait for it.
  virtual void release(const ExtentInfo& extent) = 0;
  /// The next put of this extent replaces what is there: it made no sense.
  virtual void replace(const ExtentName& extent) = 0;
  /// Most bytes of an extent in one part.
  virtual std::uint64_t part_bytes() const noexcept = 0;
  /// "memcached", "store": a part of the names of counters.
  virtual std::string_view kind() const noexcept = 0;
};

}  // namespace headrace::tier
