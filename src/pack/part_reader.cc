#include "pack/part_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "headrace/second_look.h"
#include "shard/range_fetcher.h"

namespace headrace::pack_detail {
namespace {

// One read: enough to be cheap, small enough that many fit the memory of a worker.
constexpr std::uint64_t kPieceBytes = 4 << 20;

class PartReader {
 public:
  PartReader(const Dataset& dataset, Store& store, SlabPool& pool, const CallOptions& call)
      : dataset_(dataset), store_(store), pool_(pool), call_(call) {}

  Status read_block(std::uint32_t block, std::uint32_t begin, std::uint32_t end,
                    const CellSink& sink) {
    next_ = std::max(begin_, dataset_.block(block).first_sample);
    SecondLook look;
    for (is_fresh_ = false;; is_fresh_ = true) {
      sum_.reset();
      Status status = try_block(block, begin, end, sink);
      if (status.code() != Code::kCorrupt || is_sink_over_) return status;
      if (!sum_) continue;  // What came first is gone: it is not compared.
      const SecondLook::Verdict verdict = look.take(*sum_);
      if (verdict == SecondLook::Verdict::kNeverSame) return SecondLook::never_same(status);
      if (verdict == SecondLook::Verdict::kData) return status;
    }
  }

  /// The samples of the next read_block() that are wanted, by position.
  void want(std::uint64_t begin, std::uint64_t end) {
    begin_ = begin;
    end_ = end;
  }

 private:
  /// Hands out what is left of the block, from next_ on.
  Status try_block(std::uint32_t block, std::uint32_t begin, std::uint32_t end,
                   const CellSink& sink) {
    const Block info = dataset_.block(block);
    const bool is_compressed = dataset_.is_compressed(block);
    if (is_compressed) begin = 0;
    HEADRACE_TRY_ASSIGN(Slab stored, fetch(block, begin, is_compressed ? info.sample_count : end));
    Status status;
    // A part of a plain block has nothing to be compared with.
    if (is_compressed || (begin == 0 && end == info.sample_count))
      status = dataset_.verify(block, stored.bytes());
    BlockBytes bytes{.block = block, .begin = begin, .end = end, .bytes = stored.bytes()};
    SlabArena arena(pool_, Slab());
    Slab raw;
    std::shared_ptr<const DecodedBlock> decoded;
    if (status.ok() && is_compressed && dataset_.is_decoded(block)) {
      auto made = dataset_.decode(block, stored.bytes(), arena);
      if (made) decoded = *std::move(made);
      if (!made) status = std::move(made).error();
      bytes.bytes = {};
      bytes.decoded = decoded.get();
    } else if (status.ok() && is_compressed) {
      HEADRACE_TRY_ASSIGN(raw, acquire(info.raw_bytes));
      status = dataset_.decompress(block, stored.bytes(), raw.bytes());
      bytes.bytes = raw.bytes();
    }
    if (is_fresh_ || status.code() == Code::kCorrupt) sum_ = SecondLook::digest_of(stored.bytes());
    HEADRACE_TRY(std::move(status));
    if (is_compressed) {
      bytes.end = info.sample_count;
      stored = Slab();
    }
    return cut(bytes, info, sink);
  }

  Result<Slab> acquire(std::uint64_t bytes) {
    return pool_.acquire(std::max<std::uint64_t>(bytes, 1), TimePoint::max());
  }

  Status cut(const BlockBytes& bytes, const Block& info, const CellSink& sink) {
    std::vector<ColumnBytes> cells(dataset_.columns().size());
    const std::uint64_t last = std::min(end_, info.first_sample + info.sample_count);
    for (; next_ < last; ++next_) {
      const auto index = static_cast<std::uint32_t>(next_ - info.first_sample);
      HEADRACE_TRY(dataset_.cut(bytes, index, cells));
      Status taken = sink(next_, cells);
      is_sink_over_ = !taken.ok();
      HEADRACE_TRY(std::move(taken));
    }
    return {};
  }

  /// The block's extents, laid out as the dataset wants them; empty when it has none.
  Result<Slab> fetch(std::uint32_t block, std::uint32_t begin, std::uint32_t end) {
    std::vector<Extent> extents;
    const std::uint64_t size = dataset_.append_extents(block, begin, end, extents);
    if (size == 0) return Slab();
    HEADRACE_TRY_ASSIGN(Slab slab, acquire(size));
    HEADRACE_TRY_ASSIGN(const auto fetcher, detail::RangeFetcher::create(store_, pool_, call_));
    std::vector<std::uint64_t> targets;
    for (const Extent& extent : extents) {
      for (std::uint64_t at = 0; at < extent.length_bytes; at += kPieceBytes) {
        fetcher->start({.key = extent.key,
                        .etag = extent.etag,
                        .offset_bytes = extent.offset_bytes + at,
                        .length_bytes = std::min(kPieceBytes, extent.length_bytes - at),
                        .is_fresh = is_fresh_,
                        .tag = targets.size()});
        targets.push_back(extent.target_offset_bytes + at);
      }
    }
    while (fetcher->pending() > 0) {
      HEADRACE_TRY_ASSIGN(const detail::RangeData data, fetcher->next());
      std::memcpy(slab.bytes().data() + targets[data.tag], data.bytes().data(), data.length_bytes);
    }
    return slab;
  }

  const Dataset& dataset_;
  Store& store_;
  SlabPool& pool_;
  const CallOptions& call_;
  std::uint64_t begin_ = 0, end_ = 0;
  std::uint64_t next_ = 0;            ///< Position of the sample to hand out next.
  bool is_fresh_ = false;             ///< The block is being read again, on other connections.
  bool is_sink_over_ = false;         ///< The error is the sink's.
  std::optional<std::uint64_t> sum_;  ///< Of the stored bytes of the last try, where it was taken.
};

}  // namespace

Status read_samples(const Dataset& dataset, Store& store, SlabPool& pool,
                    std::pair<std::uint64_t, std::uint64_t> range, const CallOptions& call,
                    const CellSink& sink) {
  const auto [begin, end] = range;
  if (begin > end || end > dataset.sample_count()) {
    return Status(Code::kInvalidArgument, "samples [" + std::to_string(begin) + ", " +
                                              std::to_string(end) + ") of " +
                                              std::to_string(dataset.sample_count()));
  }
  PartReader reader(dataset, store, pool, call);
  reader.want(begin, end);
  for (std::uint64_t at = begin; at < end;) {
    if (call.stop.stop_requested()) return Status(Code::kCancelled, "pack: stopped");
    const std::uint32_t index = dataset.block_of(at);
    const Block block = dataset.block(index);
    const std::uint64_t last = std::min(end, block.first_sample + block.sample_count);
    HEADRACE_TRY(reader.read_block(index, static_cast<std::uint32_t>(at - block.first_sample),
                                   static_cast<std::uint32_t>(last - block.first_sample), sink));
    at = last;
  }
  return {};
}

}  // namespace headrace::pack_detail
