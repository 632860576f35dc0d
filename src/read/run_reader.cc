#include "read/run_reader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "read/ready_block.h"

namespace headrace::read {
namespace {

// One read: enough to be cheap, small enough that many fit the memory of a worker.
constexpr std::uint64_t kPieceBytes = 4 << 20;

class RunReader {
 public:
  RunReader(const Dataset& dataset, Store& store, SlabPool& pool, const CallOptions& call,
            const CellSink& sink)
      : dataset_(dataset), pool_(pool), extents_(store, pool, call, kPieceBytes), sink_(sink) {}

  /// Samples [begin, end) of a block.
  Status read_block(std::uint32_t block, std::uint32_t begin, std::uint32_t end) {
    next_ = begin;
    Status read = read_surely([&](bool is_fresh, std::optional<std::uint64_t>& digest) {
      return try_block(block, begin, end, is_fresh, digest);
    });
    HEADRACE_TRY(std::move(read));
    return std::move(sink_error_);
  }

 private:
  /// Hands out what is left of the samples, from next_ on.
  Status try_block(std::uint32_t block, std::uint32_t begin, std::uint32_t end, bool is_fresh,
                   std::optional<std::uint64_t>& digest) {
    const Block info = dataset_.block(block);
    const bool is_compressed = dataset_.is_compressed(block);
    HEADRACE_TRY_ASSIGN(Slab stored, fetch(block, is_compressed ? 0 : begin,
                                           is_compressed ? info.sample_count : end, is_fresh));
    Status status;
    // A part of a plain block has nothing to be compared with.
    if (is_compressed || (begin == 0 && end == info.sample_count))
      status = dataset_.verify(block, stored.bytes());
    BlockBytes bytes{.block = block, .begin = begin, .end = end, .bytes = stored.bytes()};
    SlabArena arena(pool_, Slab());
    Slab raw;
    std::shared_ptr<const UnpackedBlock> unpacked;
    if (status.ok() && is_compressed) {
      if (!dataset_.is_unpacked(block)) {
        HEADRACE_TRY_ASSIGN(raw, acquire(info.raw_bytes));
      }
      auto made = make_ready(dataset_, block, stored.bytes(), raw.bytes(), &arena);
      if (made) {
        unpacked = *std::move(made);
        bytes = ready_bytes(dataset_, block, raw.bytes(), unpacked.get());
      } else {
        status = std::move(made).error();
      }
    }
    if (is_fresh || status.code() == Code::kCorrupt) digest = SecondLook::digest_of(stored.bytes());
    HEADRACE_TRY(std::move(status));
    if (is_compressed) stored = Slab();
    return cut(bytes, end);
  }

  Result<Slab> acquire(std::uint64_t bytes) {
    return pool_.acquire(std::max<std::uint64_t>(bytes, 1), TimePoint::max());
  }

  Status cut(const BlockBytes& bytes, std::uint32_t end) {
    std::vector<ColumnBytes> cells(dataset_.columns().size());
    const std::uint64_t first = dataset_.block(bytes.block).first_sample;
    for (; next_ < end; ++next_) {
      HEADRACE_TRY(dataset_.cut(bytes, next_, cells));
      sink_error_ = sink_(first + next_, cells);
      if (!sink_error_.ok()) break;
    }
    return {};
  }

  /// The block's extents, laid out as the dataset wants them; empty when it has none.
  Result<Slab> fetch(std::uint32_t block, std::uint32_t begin, std::uint32_t end, bool is_fresh) {
    std::vector<Extent> extents;
    const std::uint64_t size = dataset_.append_extents(block, begin, end, extents);
    if (size == 0) return Slab();
    HEADRACE_TRY_ASSIGN(Slab slab, acquire(size));
    HEADRACE_TRY(extents_.read(extents, is_fresh, slab.bytes()));
    return slab;
  }

  const Dataset& dataset_;
  SlabPool& pool_;
  ExtentReader extents_;
  const CellSink& sink_;
  std::uint32_t next_ = 0;  ///< The sample of the block to hand out next.
  Status sink_error_;       ///< Apart from those of reading: no other bytes will change it.
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
  RunReader reader(dataset, store, pool, call, sink);
  for (std::uint64_t at = begin; at < end;) {
    if (call.stop.stop_requested()) return Status(Code::kCancelled, "pack: stopped");
    const std::uint32_t index = dataset.block_of(at);
    const Block block = dataset.block(index);
    const std::uint64_t last = std::min(end, block.first_sample + block.sample_count);
    HEADRACE_TRY(reader.read_block(index, static_cast<std::uint32_t>(at - block.first_sample),
                                   static_cast<std::uint32_t>(last - block.first_sample)));
    at = last;
  }
  return {};
}

}  // namespace headrace::read
