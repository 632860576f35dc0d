#pragma once
/// \file
/// KeptBlocks: whole blocks that no batch of a run needs any more, and that the next one takes from
/// memory instead of reading them again. No I/O.
///
/// Place: ReadAhead puts blocks here and takes them out, and says how much they may hold; whoever
/// else lacks memory has them given up. Nothing waits for memory that they hold.
///
/// Threads: the feed thread.
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

#include "feed/residency/fetcher.h"

namespace headrace::feed {

/// The read is there, or under way, and has the whole of its block.
bool has_whole_block(const Fetch& fetch, const Dataset& dataset);

class KeptBlocks {
 public:
  /// `fetcher` must outlive what is kept.
  KeptBlocks(const Dataset& dataset, Fetcher& fetcher) : dataset_(dataset), fetcher_(fetcher) {}

  /// Takes over a read that has_whole_block(), is kReady and nobody else's, if all that is kept is
  /// of at most `room_bytes` then. False: it stays the caller's.
  bool keep(const std::shared_ptr<Fetch>& fetch, std::uint64_t room_bytes);
  /// Hands the block over; nullptr: it is not here.
  std::shared_ptr<Fetch> take(std::uint32_t block);
  bool has(std::uint32_t block) const { return by_block_.contains(block); }
  /// Gives up blocks until they hold `most_bytes` at most.
  void limit(std::uint64_t most_bytes);
  /// Gives up one block, the last that came: the first ones of an order in which blocks follow each
  /// other are needed first again. False: there is none.
  bool give_up_one();

  /// All blocks of the dataset are here.
  bool has_all() const { return by_block_.size() == dataset_.block_count(); }

 private:
  struct Entry {
    std::shared_ptr<Fetch> fetch;
    std::uint64_t bytes = 0;
  };
  using Entries = std::map<std::uint64_t, Entry>;  ///< In the order in which they came.
  std::shared_ptr<Fetch> take_out(Entries::iterator entry);

  const Dataset& dataset_;
  Fetcher& fetcher_;
  std::uint64_t count_ = 0;  ///< That came.
  Entries entries_;
  std::unordered_map<std::uint32_t, Entries::iterator> by_block_;
  std::uint64_t bytes_ = 0;
};

}  // namespace headrace::feed
