#pragma once
/// \file
/// ReadBudget: how many bytes the reads of one job may hold, whoever makes them: ReadAheadRoom for
/// any number of range fetchers, on any threads.
///
/// A job that reads for the first time begins with little and doubles it while that brings more
/// bytes a second, up to what it may take at most; so a fast store close by costs little memory,
/// and one far away gets what fills the way to it.
///
/// Place: src/io/, under RangeFetcher; who reads often keeps one (StoreClient, verify, pack), so
/// that what was found is not searched for again. Threads: any.
#include <cstdint>
#include <string>

#include "base/mutex.h"
#include "io/read_ahead_room.h"

namespace headrace::io {

class ReadBudget {
 public:
  /// What a job begins with: four reads of 8 MiB, hundreds of small ones.
  static constexpr std::uint64_t kFirstBytes = std::uint64_t{32} << 20;

  /// Whose memory it is, for the line of the log that says once that it is what limits.
  struct Owner {
    std::string subject;  ///< Who reads, such as "s3://bucket"; empty: nothing is said.
    /// Its limit. With twice of it `most_bytes` were twice as much.
    std::uint64_t memory_bytes = 0;
  };
  /// Says nothing.
  explicit ReadBudget(std::uint64_t most_bytes);
  ReadBudget(std::uint64_t most_bytes, Owner owner);

  /// Takes so many bytes when they fit. `is_alone`: always, since who has no read under way could
  /// not go on. false: ask again once one of your reads has ended.
  bool try_take(std::uint64_t size_bytes, bool is_alone);
  void give_back(std::uint64_t size_bytes);
  /// Somebody has nothing to go on with until reads end.
  void on_wait();
  /// A read has ended.
  void on_end(const Completion& completion);

  /// That reads may hold now.
  std::uint64_t bytes() const;

 private:
  void say_short() const;

  const Owner owner_;
  mutable Mutex mutex_;
  ReadAheadRoom room_ HEADRACE_GUARDED_BY(mutex_);
  Arrivals arrivals_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t held_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool has_said_short_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace::io
