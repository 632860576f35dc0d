// The parts of a file are filled by threads that live as long as a call of stage(): each takes the
// number of the next part, memory for it, copies what belongs there and sums it while it is in the
// cache.
//
// Where there is memory for all that is left, and the sink has enough to do, a part is copied and
// nothing else: stage() returns when the last byte is copied, and threads that outlive it (the
// finishers) sum those parts and put them. So whoever waits for stage() waits for one memcpy.
//
// Invariants:
// - Part numbers are taken in order, and memory in that order; so with any amount of memory the
//   lowest parts leave first, and the file grows from its beginning.
// - A sum block lies in two parts at most (PartMap). What of it lies in one part alone has its sum
//   in sums_ at once; halves are kept until finish() puts them together.
// - The sum of the file is made of those of the blocks: no byte is summed twice, but in an
//   encrypted file, whose sum is that of what lies there.
// - In an encrypted file each byte is encrypted in the part where it lies. A block that lies in two
//   parts has its tag, as its fingerprint, when both halves were copied.
// - No element lies in two parts: parts are whole pages, and wide pieces come first. So each run of
//   bytes that is copied is whole elements, whose values are looked at while they are in the cache.
// - A compressed file is copied, summed and looked at like any other, but no block lies in two
//   parts; places, tags and the sum of the file are made behind that, by the PackingSink.
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/crc32c.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "checkpoint/block_sealer.h"
#include "checkpoint/crew.h"
#include "checkpoint/fingerprinter.h"
#include "checkpoint/packing_sink.h"
#include "checkpoint/part_map.h"
#include "checkpoint/part_sink.h"
#include "checkpoint/stream_copy.h"
#include "checkpoint/value_scan.h"
#include "checkpoint/wait_slice.h"
#include "checkpoint/written_check.h"
#include "headrace/checkpoint.h"

namespace headrace::checkpoint {
namespace {

constexpr std::uint64_t kLeastPartBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kPageBytes = 4096;
/// As many a sink must have for parts to be copied alone: it is kept busy meanwhile.
constexpr std::uint32_t kBusyParts = 2;

class Writer final : public DataWriter {
 public:
  Writer(std::shared_ptr<StoreClient> client, std::string key, DataLayout layout,
         const WriteOptions& options, std::uint64_t part_bytes)
      : client_(std::move(client)),
        key_(std::move(key)),
        layout_(std::move(layout)),
        options_(options),
        part_bytes_(part_bytes),
        map_(layout_, part_bytes),
        part_sums_(map_.count()),
        halves_(map_.count()),
        sums_(layout_.pieces().size()),
        tags_(layout_.pieces().size()),
        fingerprints_(options_.fingerprint_key ? layout_.pieces().size() : 0),
        not_finite_(layout_.pieces().size()),
        has_other_than_zero_(layout_.pieces().size()) {
    for (const Piece& piece : layout_.pieces()) kinds_.push_back(number_kind(piece.dtype));
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      sums_[i].resize((layout_.places()[i].length_bytes + kSumBlockBytes - 1) / kSumBlockBytes);
      if (layout_.key() != nullptr) tags_[i].resize(sums_[i].size());
      if (!fingerprints_.empty()) fingerprints_[i].resize(sums_[i].size());
    }
  }

  ~Writer() override { is_given_up_.store(true, std::memory_order_relaxed); }

  Status start() {
    SinkOptions sink{.key = key_,
                     .size_bytes = layout_.is_compressed() ? 0 : layout_.size_bytes(),
                     .part_bytes = part_bytes_,
                     .part_count = map_.count(),
                     .parts_in_flight = options_.parts_in_flight};
    HEADRACE_TRY_ASSIGN(sink_, make_sink(client_, std::move(sink)));
    if (layout_.is_compressed()) {
      auto packing = std::make_unique<PackingSink>(std::move(sink_), layout_, map_, part_bytes_,
                                                   options_.copy_threads);
      packing_ = packing.get();
      sink_ = std::move(packing);
    }
    return {};
  }

  std::uint32_t part_count() const noexcept override { return map_.count(); }
  std::uint64_t part_bytes() const noexcept override { return part_bytes_; }

  Status stage(std::span<const StageSource> sources, std::uint32_t first_part,
               std::uint32_t end_part, const Pause& pause) override {
    if (sources.size() != sums_.size() || first_part > end_part || end_part > map_.count())
      return Status(Code::kInvalidArgument, key_ + ": no such pieces or parts");
    sources_ = sources;
    next_part_ = with_memory_ = first_part;
    end_part_ = end_part;
    const std::uint32_t count =
        std::min(std::max(options_.copy_threads, 1U), end_part - first_part);
    note(run_crew(
        count, [this](const std::stop_token& stop) { return copy_parts(stop); }, pause));
    finish_copied();
    return error();
  }

  Result<DataFile> finish(const Pause& pause) override {
    HEADRACE_TRY(wait_for_finishers(pause));
    DataFile file;
    HEADRACE_TRY_ASSIGN(file.etag, sink_->finish(map_.count(), pause));
    join_halves();
    file.sums = std::move(sums_);
    describe_stored(file);
    file.fingerprints = std::move(fingerprints_);
    for (std::size_t i = 0; i < not_finite_.size(); ++i) {
      const bool is_zero = options_.scan_values && !has_other_than_zero_[i];
      file.values.push_back({.not_finite = not_finite_[i], .is_zero = is_zero});
    }
    HEADRACE_TRY(check_written(*client_, key_, file.etag, file.size_bytes, file.crc32c,
                               options_.check, pause));
    // Behind the save, which had better use for the processors.
    prepare_memory(*client_->pool(), layout_.size_bytes(), part_bytes_);
    return file;
  }

 private:
  /// A part that was copied, and not summed yet.
  struct CopiedPart {
    std::uint32_t index;
    Slab slab;
  };

  /// What of the file is not of its pieces as they were given.
  void describe_stored(DataFile& file) {
    if (packing_ != nullptr) {
      packing_->describe(file);
      return;
    }
    file.size_bytes = layout_.size_bytes();
    for (std::uint32_t part = 0; part < map_.count(); ++part)
      file.crc32c = crc32c_combine(file.crc32c, part_sums_[part], map_.length_bytes(part));
    file.places = layout_.places();
    file.tags = std::move(tags_);
    file.stored_bytes.resize(file.places.size());
  }

  /// Some of a block's bytes, those up to the end of a part or from its beginning.
  struct Half {
    std::uint32_t piece;
    std::uint64_t from_bytes;
    std::uint64_t length_bytes;
    std::uint32_t sum;
  };

  /// A block of which some bytes lie in a part, and the others in the next.
  struct CutBlock {
    std::vector<std::byte> bytes;
    std::uint64_t arrived_bytes = 0;
  };

  /// A thread's.
  struct BlockTools {
    std::optional<Fingerprinter> fingerprinter;  ///< None: nobody asks for fingerprints.
    std::optional<BlockSealer> sealer;           ///< None: the file is not encrypted.
  };

  Status make_tools(BlockTools& tools) const {
    if (options_.fingerprint_key) {
      HEADRACE_TRY_ASSIGN(tools.fingerprinter, Fingerprinter::make(*options_.fingerprint_key));
    }
    const SealKey* const key = layout_.key();
    if (key != nullptr && !layout_.is_compressed()) {
      HEADRACE_TRY_ASSIGN(const seal::Salt salt, seal::read_seal_header(layout_.header(), key));
      tools.sealer.emplace(*key, salt);
    }
    return {};
  }

  Status copy_parts(const std::stop_token& stop) {
    BlockTools tools;
    HEADRACE_TRY(make_tools(tools));
    while (!stop.stop_requested()) {
      // Relaxed: a number is all that is shared here.
      const std::uint32_t part = next_part_.fetch_add(1, std::memory_order_relaxed);
      if (part >= end_part_) break;
      HEADRACE_TRY_ASSIGN(Slab slab, take_memory(part, tools, stop));
      HEADRACE_TRY(check_sources(part));
      if (can_wait(part)) {
        copy_alone(part, std::move(slab));
      } else {
        finish_part(part, std::move(slab), /*is_copied=*/false, tools);
      }
    }
    return {};
  }

  /// Whether a part that has its memory may be summed later.
  bool can_wait(std::uint32_t part) const {
    const SlabPool& pool = *client_->pool();
    const std::uint64_t left = SlabPool::charged_bytes(part_bytes_) * (end_part_ - part - 1);
    return pool.used_bytes() + left <= pool.limit_bytes() && sink_->pending() >= kBusyParts;
  }

  /// Memory for a part, when the parts before have theirs: what is compressed leaves in order, and
  /// must not wait for a part that waits for its memory.
  Result<Slab> take_memory(std::uint32_t part, BlockTools& tools, const std::stop_token& stop) {
    for (std::uint32_t seen = with_memory_; seen != part; seen = with_memory_)
      with_memory_.wait(seen);
    auto slab = wait_for_memory(PartSink::slab_bytes(map_.length_bytes(part)), tools, stop);
    with_memory_ = part + 1;
    with_memory_.notify_all();
    return slab;
  }

  /// Where others have taken the memory that can_wait() has seen, parts that were copied alone are
  /// finished for it.
  Result<Slab> wait_for_memory(std::uint64_t size_bytes, BlockTools& tools,
                               const std::stop_token& stop) {
    while (true) {
      HEADRACE_TRY(sink_->failure());
      if (auto slab = client_->pool()->try_acquire(size_bytes)) return slab;
      if (auto copied = take_copied()) {
        finish_part(copied->index, std::move(copied->slab), /*is_copied=*/true, tools);
        continue;
      }
      auto slab = client_->pool()->acquire(size_bytes, system_clock().now() + kPauseSlice);
      if (slab || slab.error().code() != Code::kDeadline) return slab;
      if (stop.stop_requested()) return Status(Code::kCancelled, "the save was given up");
      HEADRACE_TRY(client_->why({}));
    }
  }

  /// Errors: kInvalidArgument (one that lacks bytes which lie in the part, or has no address).
  Status check_sources(std::uint32_t part) const {
    for (const Slice& slice : map_.slices(part)) {
      if (slice.piece == Slice::kHeader) continue;
      const StageSource& source = sources_[slice.piece];
      if (source.bytes.data() == nullptr || slice.from_bytes < source.from_bytes ||
          slice.from_bytes + slice.length_bytes > source.from_bytes + source.bytes.size()) {
        return Status(Code::kInvalidArgument,
                      key_ + ": " + layout_.pieces()[slice.piece].name + ": has too few bytes");
      }
    }
    return {};
  }

  std::span<const std::byte> source_of(const Slice& slice) const {
    if (slice.piece == Slice::kHeader)
      return std::as_bytes(std::span(layout_.header()))
          .subspan(slice.from_bytes, slice.length_bytes);
    const StageSource& source = sources_[slice.piece];
    return source.bytes.subspan(slice.from_bytes - source.from_bytes, slice.length_bytes);
  }

  void copy_alone(std::uint32_t part, Slab slab) {
    for (const Slice& slice : map_.slices(part))
      stream_copy(slab.bytes().data() + slice.at_bytes, source_of(slice));
    MutexLock lock(mutex_);
    copied_.push_back({part, std::move(slab)});
  }

  std::optional<CopiedPart> take_copied() {
    MutexLock lock(mutex_);
    if (copied_.empty()) return std::nullopt;
    CopiedPart part = std::move(copied_.back());
    copied_.pop_back();
    return part;
  }

  /// Lets the finishers have what was copied alone.
  void finish_copied() {
    std::vector<CopiedPart> parts;
    {
      MutexLock lock(mutex_);
      parts.swap(copied_);
    }
    if (parts.empty()) return;
    if (!finishers_) finishers_.emplace(std::max(options_.copy_threads, 1U), map_.count());
    {
      MutexLock lock(mutex_);
      unfinished_ += static_cast<std::uint32_t>(parts.size());
    }
    for (CopiedPart& each : parts) {
      auto part = std::make_shared<CopiedPart>(std::move(each));
      finishers_->submit([this, part] { finish_later(*part); });
    }
  }

  void finish_later(CopiedPart& part) {
    if (!is_given_up_.load(std::memory_order_relaxed)) {
      BlockTools tools;
      Status status = make_tools(tools);
      if (status.ok()) finish_part(part.index, std::move(part.slab), /*is_copied=*/true, tools);
      note(std::move(status));
    }
    part.slab = Slab();
    {
      MutexLock lock(mutex_);
      --unfinished_;
    }
    changed_.notify_all();
  }

  Status wait_for_finishers(const Pause& pause) {
    MutexLock lock(mutex_);
    while (unfinished_ > 0) wait_slice(lock, changed_, pause);
    return error_.clone();
  }

  void note(Status status) {
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = std::move(status);
  }

  Status error() const {
    MutexLock lock(mutex_);
    return error_.clone();
  }

  /// Copies a part, unless it `is_copied`, sums it, and hands it to the sink. \pre
  /// check_sources().
  void finish_part(std::uint32_t part, Slab slab, bool is_copied, BlockTools& tools) {
    const std::uint64_t length_bytes = map_.length_bytes(part);
    std::uint32_t sum = 0;
    for (const Slice& slice : map_.slices(part)) {
      std::byte* const to = slab.bytes().data() + slice.at_bytes;
      const std::byte* const from = is_copied ? nullptr : source_of(slice).data();
      if (slice.piece == Slice::kHeader) {
        if (from != nullptr) std::memcpy(to, from, slice.length_bytes);
        sum = crc32c({to, slice.length_bytes}, sum);
      } else {
        sum = finish_slice(part, slice, tools, from, to, sum);
      }
    }
    part_sums_[part] = sum;
    std::memset(slab.bytes().data() + length_bytes, 0, slab.size_bytes() - length_bytes);
    sink_->put(part, std::move(slab), length_bytes);
  }

  /// `from`: nullptr when the bytes are at `to` already. \return the sum of the part so far.
  std::uint32_t finish_slice(std::uint32_t part, const Slice& slice, BlockTools& tools,
                             const std::byte* from, std::byte* to, std::uint32_t sum) {
    const std::uint64_t piece_bytes = layout_.places()[slice.piece].length_bytes;
    const std::uint64_t end = slice.from_bytes + slice.length_bytes;
    for (std::uint64_t at = slice.from_bytes; at < end;) {
      const std::uint64_t block_end =
          std::min((at / kSumBlockBytes + 1) * kSumBlockBytes, piece_bytes);
      const std::uint64_t length_bytes = std::min(block_end, end) - at;
      if (from != nullptr) {
        std::memcpy(to, from, length_bytes);
        from += length_bytes;
      }
      const std::uint32_t block_sum = crc32c({to, length_bytes});
      if (options_.scan_values) scan(slice.piece, {to, length_bytes});
      if (tools.fingerprinter || tools.sealer)
        finish_block(tools, slice.piece, at, {to, length_bytes});
      sum = tools.sealer ? crc32c({to, length_bytes}, sum)
                         : crc32c_combine(sum, block_sum, length_bytes);
      if (at % kSumBlockBytes == 0 && at + length_bytes == block_end) {
        sums_[slice.piece][at / kSumBlockBytes] = block_sum;
      } else {
        halves_[part].push_back({slice.piece, at, length_bytes, block_sum});
      }
      to += length_bytes;
      at += length_bytes;
    }
    return sum;
  }

  /// Fingerprints and encrypts the bytes of a piece from `at` on, which are a block, or what of one
  /// lies in a part.
  void finish_block(BlockTools& tools, std::uint32_t piece, std::uint64_t at,
                    std::span<std::byte> copied) {
    const std::uint64_t block = at / kSumBlockBytes;
    const std::uint64_t length_bytes =
        std::min(kSumBlockBytes, layout_.places()[piece].length_bytes - block * kSumBlockBytes);
    if (copied.size() == length_bytes) {
      finish_whole(tools, piece, block, copied);
      return;
    }
    std::vector<std::byte> whole = join_cut_block(piece, at, copied, length_bytes);
    if (tools.sealer) seal_half(*tools.sealer, piece, at, copied);
    if (!whole.empty()) finish_whole(tools, piece, block, whole);
  }

  /// Fingerprints a block, and encrypts it where it is.
  void finish_whole(BlockTools& tools, std::uint32_t piece, std::uint64_t block,
                    std::span<std::byte> bytes) {
    if (tools.fingerprinter) fingerprints_[piece][block] = tools.fingerprinter->print(bytes);
    if (!tools.sealer) return;
    const std::uint64_t begin = layout_.places()[piece].offset_bytes + block * kSumBlockBytes;
    tools.sealer->seal(begin, bytes, bytes, tags_[piece][block]);
  }

  /// Encrypts where they are the bytes of a block from `at` on. GCM encrypts each byte by where it
  /// lies in the block, whatever the others are; the tag, which is of all, is not this one.
  void seal_half(BlockSealer& sealer, std::uint32_t piece, std::uint64_t at,
                 std::span<std::byte> half) {
    const std::uint64_t before = at % kSumBlockBytes;
    std::array<std::byte, kSumBlockBytes> room{};
    const std::span<std::byte> bytes = std::span(room).first(before + half.size());
    std::ranges::copy(half, bytes.subspan(before).begin());
    SealTag unused;
    sealer.seal(layout_.places()[piece].offset_bytes + at - before, bytes, bytes, unused);
    std::ranges::copy(bytes.subspan(before), half.begin());
  }

  /// \return a block of which the bytes from `at` on were copied; nothing when its other half was
  /// not copied yet.
  std::vector<std::byte> join_cut_block(std::uint32_t piece, std::uint64_t at,
                                        std::span<const std::byte> copied,
                                        std::uint64_t length_bytes) {
    const std::uint64_t block = at / kSumBlockBytes;
    MutexLock lock(mutex_);
    CutBlock& cut = cut_blocks_[{piece, block}];
    cut.bytes.resize(length_bytes);
    std::ranges::copy(copied,
                      cut.bytes.begin() + static_cast<std::ptrdiff_t>(at - block * kSumBlockBytes));
    cut.arrived_bytes += copied.size();
    if (cut.arrived_bytes < length_bytes) return {};
    std::vector<std::byte> whole = std::move(cut.bytes);
    cut_blocks_.erase({piece, block});
    return whole;
  }

  void scan(std::uint32_t piece, std::span<const std::byte> bytes) {
    const std::uint64_t found = count_not_finite(kinds_[piece], bytes);
    if (found > 0) not_finite_[piece].fetch_add(found, std::memory_order_relaxed);
    std::atomic<bool>& has_other = has_other_than_zero_[piece];
    if (!has_other.load(std::memory_order_relaxed) && !is_all_zero(bytes))
      has_other.store(true, std::memory_order_relaxed);
  }

  /// The first half of a block is the last of a part, the second the first of the next.
  void join_halves() {
    std::vector<Half> all;
    for (std::vector<Half>& some : halves_) all.insert(all.end(), some.begin(), some.end());
    for (const Half& half : all) {
      std::uint32_t& sum = sums_[half.piece][half.from_bytes / kSumBlockBytes];
      sum = crc32c_combine(sum, half.sum, half.length_bytes);
    }
  }

  const std::shared_ptr<StoreClient> client_;
  const std::string key_;
  const DataLayout layout_;
  const WriteOptions options_;
  const std::uint64_t part_bytes_;
  const PartMap map_;
  std::span<const StageSource> sources_;  ///< During stage().
  std::uint32_t end_part_ = 0;            ///< Likewise.
  std::atomic<std::uint32_t> next_part_{0};
  std::atomic<std::uint32_t> with_memory_{0};  ///< The first part that was not given any.
  std::vector<std::uint32_t> part_sums_;       ///< Each its part's thread's.
  std::vector<std::vector<Half>> halves_;
  std::vector<std::vector<std::uint32_t>> sums_;
  // Each of one thread.
  std::vector<std::vector<SealTag>> tags_;              ///< Of an encrypted file.
  std::vector<std::vector<Fingerprint>> fingerprints_;  ///< Empty: nobody asks for them.
  std::vector<NumberKind> kinds_;
  // By piece, of all threads; read when they have ended.
  std::vector<std::atomic<std::uint64_t>> not_finite_;
  std::vector<std::atomic<bool>> has_other_than_zero_;

  std::atomic<bool> is_given_up_{false};  ///< Nobody wants the rest.

  mutable Mutex mutex_;
  std::condition_variable changed_;
  Status error_ HEADRACE_GUARDED_BY(mutex_);  ///< The first of any stage(), or of a finisher.
  std::vector<CopiedPart> copied_ HEADRACE_GUARDED_BY(mutex_);  ///< Of the present stage().
  std::uint32_t unfinished_ HEADRACE_GUARDED_BY(mutex_) = 0;    ///< That the finishers have.
  /// By piece and number. At most one for each part.
  std::map<std::pair<std::uint32_t, std::uint64_t>, CutBlock> cut_blocks_
      HEADRACE_GUARDED_BY(mutex_);

  PackingSink* packing_ = nullptr;       ///< The sink of a compressed file.
  std::unique_ptr<PartSink> sink_;       // Its threads hold slabs of the client.
  std::optional<ThreadPool> finishers_;  // Last: its tasks use all of the above.
};

/// Parts of the size that is wished for, or larger where there would be too many.
Result<std::uint64_t> choose_part_bytes(const StoreClient& client, const DataLayout& layout,
                                        const WriteOptions& options) {
  const std::uint64_t for_count = (layout.size_bytes() + kMostParts - 1) / kMostParts;
  std::uint64_t part_bytes = std::max({options.part_bytes, for_count, kLeastPartBytes});
  const std::uint64_t unit = layout.is_compressed() ? kSumBlockBytes : kPageBytes;
  part_bytes = (part_bytes + unit - 1) / unit * unit;
  const std::uint64_t least = std::min(part_bytes, layout.size_bytes());
  const std::uint64_t limit = client.pool()->limit_bytes();
  // Of a compressed file one is filled while the next is compressed.
  const std::uint64_t parts = layout.is_compressed() && layout.size_bytes() > part_bytes ? 2 : 1;
  if (parts * SlabPool::charged_bytes(PartSink::slab_bytes(least)) > limit) {
    return Status(Code::kInvalidArgument,
                  "a part of " + std::to_string(part_bytes) +
                      " bytes does not fit the memory for staging (" + std::to_string(limit) +
                      " bytes" + (parts == 2 ? ", and two must" : "") + "): raise memory=");
  }
  return part_bytes;
}

}  // namespace

void prepare_memory(SlabPool& pool, std::uint64_t size_bytes, std::uint64_t part_bytes) {
  if (size_bytes == 0 || part_bytes == 0) return;
  pool.prepare(PartSink::slab_bytes(std::min(size_bytes, part_bytes)),
               (size_bytes + part_bytes - 1) / part_bytes);
}

Result<std::unique_ptr<DataWriter>> DataWriter::begin(std::shared_ptr<StoreClient> client,
                                                      std::string key, DataLayout layout,
                                                      const WriteOptions& options) {
  HEADRACE_TRY_ASSIGN(const std::uint64_t part_bytes, choose_part_bytes(*client, layout, options));
  auto writer = std::make_unique<Writer>(std::move(client), std::move(key), std::move(layout),
                                         options, part_bytes);
  HEADRACE_TRY(writer->start());
  return std::unique_ptr<DataWriter>(std::move(writer));
}

}  // namespace headrace::checkpoint
