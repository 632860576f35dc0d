#include <fmt/format.h>

#include "base/endian.h"
#include "shard/build.h"
#include "shard/mds/mds_shard.h"
#include "shard/range_fetcher.h"

namespace headrace::detail {
namespace {

// One read of a table: 2^18 samples. Small enough that a few dozen fit any sensible pool.
constexpr std::uint64_t kTableReadBytes = std::uint64_t{1} << 20;
// Shards whose tables are read at once; bounds the memory of unfinished ones and keeps the index in
// shard order.
constexpr std::size_t kShardWindow = 256;
// Sample count and first offset; all a probe needs.
constexpr std::uint64_t kProbeBytes = 8;

struct ShardState {
  std::string etag;
  std::vector<std::uint64_t> offsets;
  std::uint64_t wanted_bytes = 0;     // Of the table; kProbeBytes for a probe.
  std::uint64_t requested_bytes = 0;  // Pieces of one shard are read one after another.
  bool is_done = false;
};

class MdsBuilder {
 public:
  MdsBuilder(const BuildContext& context, const MdsIndex& index, RangeFetcher& fetcher)
      : context_(context),
        index_(index),
        fetcher_(fetcher),
        layout_(index.columns),
        states_(index.shards.size()),
        piece_bytes_(context.read_bytes(kTableReadBytes)) {}

  Result<std::string> run(const IndexSource& source) {
    const std::size_t count = index_.shards.size();
    std::size_t started = 0;
    std::size_t finished = 0;
    while (finished < count) {
      for (; started < count && started < finished + kShardWindow; ++started) start(started);
      HEADRACE_TRY_ASSIGN(auto data, fetcher_.next());
      HEADRACE_TRY(take(data));
      for (; finished < count && states_[finished].is_done; ++finished) {
        emit(finished);
        context_.report(finished + 1, count);
      }
    }
    return writer_.finish({.format = Format::kMds,
                           .columns = index_.columns,
                           .source = source,
                           .block_bytes = context_.options.block_bytes});
  }

 private:
  bool is_table_needed(const MdsShard& shard) const {
    return shard.compression == Compression::kNone && !layout_.is_fixed();
  }

  void start(std::size_t s) {
    const MdsShard& shard = index_.shards[s];
    states_[s].wanted_bytes = is_table_needed(shard) ? mds_table_bytes(shard.sample_count)
                                                     : std::min(kProbeBytes, shard.stored_bytes);
    request(s);
  }

  void request(std::size_t s) {
    ShardState& state = states_[s];
    const std::uint64_t length = std::min(piece_bytes_, state.wanted_bytes - state.requested_bytes);
    fetcher_.start({.key = index_.shards[s].basename,
                    .etag = state.etag,
                    .offset_bytes = state.requested_bytes,
                    .length_bytes = length,
                    .allow_short = true,
                    .tag = s});
    state.requested_bytes += length;
  }

  Status take(const RangeData& data) {
    const std::size_t s = data.tag;
    const MdsShard& shard = index_.shards[s];
    ShardState& state = states_[s];
    const bool is_first = state.offsets.empty();
    if (data.object_size_bytes != 0 && data.object_size_bytes != shard.stored_bytes) {
      return corrupt(s, fmt::format("has {} bytes, index.json says {}", data.object_size_bytes,
                                    shard.stored_bytes));
    }
    const std::uint64_t offset =
        state.requested_bytes - std::min(state.requested_bytes, piece_length(state));
    if (offset + data.length_bytes != state.requested_bytes) {
      return corrupt(s, fmt::format("ends after {} bytes, index.json says {}",
                                    offset + data.length_bytes, shard.stored_bytes));
    }
    if (is_first) state.etag = data.etag;
    if (!is_table_needed(shard)) {
      state.is_done = true;
      return shard.compression == Compression::kNone ? check_fixed(s, data.bytes()) : Status();
    }
    if (is_first) state.offsets.reserve(shard.sample_count + 1);
    append_mds_offsets(data.bytes(), offset, state.offsets);
    if (offset == 0 && load_le<std::uint32_t>(data.bytes().data()) != shard.sample_count) {
      return corrupt(s,
                     fmt::format("has {} samples, index.json says {}",
                                 load_le<std::uint32_t>(data.bytes().data()), shard.sample_count));
    }
    if (state.requested_bytes < state.wanted_bytes) {
      request(s);
      return Status();
    }
    state.is_done = true;
    Status status = check_mds_offsets(state.offsets, shard.raw_bytes);
    return status.ok() ? Status() : corrupt(s, status.message());
  }

  // Length of the piece that was requested last.
  std::uint64_t piece_length(const ShardState& state) const {
    const std::uint64_t rest = state.requested_bytes % piece_bytes_;
    return rest == 0 ? piece_bytes_ : rest;
  }

  // Samples of equal size: their place follows from the sizes, if those add up to the file.
  Status check_fixed(std::size_t s, std::span<const std::byte> head) {
    const MdsShard& shard = index_.shards[s];
    const std::uint64_t count = load_le<std::uint32_t>(head.data());
    const std::uint64_t first = load_le<std::uint32_t>(head.data() + 4);
    if (count != shard.sample_count) {
      return corrupt(s,
                     fmt::format("has {} samples, index.json says {}", count, shard.sample_count));
    }
    if (first < mds_table_bytes(count) ||
        first + count * layout_.sample_bytes() != shard.raw_bytes) {
      return corrupt(s, fmt::format("{} samples of {} bytes from {} do not end at {}", count,
                                    layout_.sample_bytes(), first, shard.raw_bytes));
    }
    states_[s].offsets = {first, first + layout_.sample_bytes()};
    return Status();
  }

  void emit(std::size_t s) {
    const MdsShard& shard = index_.shards[s];
    ShardState& state = states_[s];
    ShardRecord record;
    record.sample_count = shard.sample_count;
    record.stored_bytes = shard.stored_bytes;
    record.raw_bytes = shard.raw_bytes;
    record.compression = shard.compression;
    record.hashes = shard.hashes;
    record.first_object = writer_.object_count();
    if (shard.compression == Compression::kNone)
      record.bounds = writer_.bounds().append(state.offsets);
    writer_.add_object(shard.basename, state.etag, shard.stored_bytes);
    writer_.add_shard(record);
    state = ShardState{
        .etag = {}, .offsets = {}, .wanted_bytes = 0, .requested_bytes = 0, .is_done = true};
  }

  Status corrupt(std::size_t s, std::string_view what) const {
    return Status(
        Code::kCorrupt,
        fmt::format("{}: {}", context_.store.object_url(index_.shards[s].basename), what));
  }

  const BuildContext& context_;
  const MdsIndex& index_;
  RangeFetcher& fetcher_;
  const MdsLayout layout_;
  std::vector<ShardState> states_;
  IndexWriter writer_;
  const std::uint64_t piece_bytes_;
};

}  // namespace

Result<std::string> build_mds_index(const BuildContext& context, const MdsIndex& index,
                                    const IndexSource& source) {
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, context.call));
  return MdsBuilder(context, index, *fetcher).run(source);
}

}  // namespace headrace::detail
