#pragma once
/// \file
/// PackingSink: between a writer and where its parts go, it compresses their blocks and makes
/// parts of the result. docs/design/0058.
///
/// Threads: as PartSink; it has threads of its own.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "checkpoint/block_sealer.h"
#include "checkpoint/part_map.h"
#include "checkpoint/part_sink.h"

namespace headrace::checkpoint {

/// A part is compressed where it lies, by any thread; then, in the order of the file, its blocks
/// are encrypted, where they are to be, and what it has become is put behind what came before. That
/// takes no other memory; but for two parts there must be some: one that is being filled, and one
/// that comes next.
class PackingSink final : public PartSink {
 public:
  /// `to`: takes as many parts of `part_bytes` as `map` has, or fewer. `map` outlives it.
  PackingSink(std::unique_ptr<PartSink> to, const DataLayout& layout, const PartMap& map,
              std::uint64_t part_bytes, std::uint32_t threads);
  ~PackingSink() override;

  void put(std::uint32_t index, Slab slab, std::uint64_t length_bytes) override;
  std::uint32_t pending() const override;
  Status failure() const override { return to_->failure(); }
  std::string token() const override { return to_->token(); }
  /// Of the parts that were made.
  Result<std::vector<UploadedPart>> settle(std::uint32_t count, const Pause& pause) override;
  Result<std::string> publish(std::span<const UploadedPart> parts) override {
    return to_->publish(parts);
  }

  /// Size, sum, places, stored bytes and tags of the file. \pre settle() was.
  void describe(DataFile& file);

 private:
  struct Packed {
    Slab slab;
    std::uint64_t length_bytes = 0;
  };

  /// \return the bytes that are left of a part, at the front of its slab.
  std::uint64_t pack(std::uint32_t part, std::span<std::byte> bytes);
  /// Takes all parts on whose turn has come, unless another thread does.
  void take_on(std::uint32_t part, Packed packed);
  void append(std::uint32_t part, Packed packed);
  void seal_blocks(std::uint32_t part, std::byte* bytes);
  void pass_on();

  const std::unique_ptr<PartSink> to_;
  const PartMap& map_;
  const std::uint64_t part_bytes_;
  std::vector<std::uint32_t> planes_;                     ///< Of each piece.
  std::vector<std::vector<std::uint16_t>> stored_bytes_;  ///< Of each block; its part's thread's.
  std::atomic<bool> is_given_up_{false};

  // Of the thread that takes parts on.
  Packed open_;  ///< The part that is being filled.
  std::uint32_t made_count_ = 0;
  std::uint64_t size_bytes_ = 0;  ///< Of the file so far.
  std::uint32_t crc32c_ = 0;      ///< Likewise.
  std::vector<PlacedPiece> places_;
  std::vector<std::vector<SealTag>> tags_;
  std::optional<BlockSealer> sealer_;  ///< None: the file is not encrypted.

  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint32_t, Packed> waiting_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t put_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint32_t next_ HEADRACE_GUARDED_BY(mutex_) = 0;  ///< Part that is to be taken on.
  bool is_taking_on_ HEADRACE_GUARDED_BY(mutex_) = false;

  ThreadPool packers_;  // Last: its tasks use all of the above.
};

}  // namespace headrace::checkpoint
