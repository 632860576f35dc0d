// Only what the samples' places need is read: the table of offsets of a plain shard, eight bytes
// of one whose samples have equal sizes, a probe of a compressed one (its version and its size;
// its table comes with the data), and the meta file of a split one. Sizes and counts of index.json
// are compared with what the objects say, so that shards of another dataset are found here and not
// in training.
//
// Shards are begun in their order as far as the window has room, end in any order, and are written
// to the index in their order again. Pieces of one table are read one after another, with the
// version of the first.
#include <fmt/format.h>

#include <utility>

#include "base/endian.h"
#include "headrace/range_fetcher.h"
#include "shard/codec/digest.h"
#include "shard/codec/inflate.h"
#include "shard/formats/mds/mds_driver.h"
#include "shard/formats/mds/mds_shard.h"
#include "shard/read_window.h"

namespace headrace::detail {
namespace {

// One read of a table: 2^18 samples. Small enough that a few dozen fit any sensible pool.
constexpr std::uint64_t kTableReadBytes = std::uint64_t{1} << 20;
// A table of 2^28 samples: more than a shard below 2^32 bytes is known to have.
constexpr std::uint64_t kMostMetaBytes = std::uint64_t{1} << 30;
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
  Status failure;                // Of a broken shard, which keeps its positions.
  std::uint64_t real_bytes = 0;  // As the store says; 0: it does not.
  // Of a split shard: its meta file so far, read like the table of others; the data file is probed.
  std::string meta;
  std::string meta_etag;
  bool is_probed = false;
};

class MdsBuilder {
 public:
  MdsBuilder(const BuildContext& context, const MdsIndex& index, RangeFetcher& fetcher)
      : context_(context),
        index_(index),
        fetcher_(fetcher),
        layout_(index.columns),
        states_(index.shards.size()),
        piece_bytes_(context.read_bytes(kTableReadBytes)),
        window_(kShardWindow, context.pool.limit_bytes()) {}

  Result<std::string> run(const IndexSource& source) {
    const std::size_t count = index_.shards.size();
    std::size_t started = 0;
    std::size_t finished = 0;
    while (finished < count) {
      for (; started < count && window_.has_room(cost_of(started)); ++started) {
        window_.begin(cost_of(started));
        start(started);
      }
      std::uint64_t tag = 0;
      auto data = fetcher_.next(&tag);
      if (!data && data.error().code() != Code::kNotFound) return std::move(data).error();
      if (data) {
        settle(*data, take(*data));
      } else {
        lose(tag);
      }
      for (; finished < count && states_[finished].is_done; ++finished) {
        window_.end(cost_of(finished));
        HEADRACE_TRY(emit(finished));
        context_.report(finished + 1, count);
      }
    }
    return writer_.finish({.format = Format::kMds,
                           .columns = index_.columns,
                           .source = source,
                           .block_bytes = context_.options.block_bytes,
                           .layout = layout_of(index_.split),
                           .broken = context_.left_out()});
  }

 private:
  bool is_split() const { return index_.split.kind != MdsSplit::Kind::kNone; }
  // Bytes that a shard holds while it is read: its offsets; of a split one also its meta file, and
  // that inflated.
  std::uint64_t cost_of(std::size_t s) const {
    const MdsShard& shard = index_.shards[s];
    if (!is_split())
      return is_table_needed(shard) ? sizeof(std::uint64_t) * (shard.sample_count + 1) : 0;
    const MdsMeta& meta = shard.meta;
    return std::min(meta.stored_bytes, kMostMetaBytes) + std::min(meta.raw_bytes, kMostMetaBytes) +
           2 * mds_table_bytes(shard.sample_count);
  }
  bool is_table_needed(const MdsShard& shard) const {
    return shard.compression == Compression::kNone && !layout_.is_fixed();
  }

  void start(std::size_t s) {
    const MdsShard& shard = index_.shards[s];
    if (is_split()) return start_split(s);
    states_[s].wanted_bytes = is_table_needed(shard) ? mds_table_bytes(shard.sample_count)
                                                     : std::min(kProbeBytes, shard.stored_bytes);
    request(s);
  }

  void request(std::size_t s) {
    ShardState& state = states_[s];
    const std::uint64_t length = std::min(piece_bytes_, state.wanted_bytes - state.requested_bytes);
    fetcher_.start({.key = is_split() ? index_.shards[s].meta.basename : index_.shards[s].basename,
                    .etag = is_split() ? state.meta_etag : state.etag,
                    .offset_bytes = state.requested_bytes,
                    .length_bytes = length,
                    .allow_short = true,
                    .tag = 2 * s});
    state.requested_bytes += length;
  }

  void start_split(std::size_t s) {
    states_[s].wanted_bytes = index_.shards[s].meta.stored_bytes;
    request(s);
    // Tells the version and the size of the data file.
    fetcher_.start({.key = index_.shards[s].basename,
                    .etag = {},
                    .length_bytes = 1,
                    .allow_short = true,
                    .tag = 2 * s + 1});
  }

  void settle(const RangeData& data, Status status) {
    if (status.ok()) return;
    ShardState& state = states_[data.tag / 2];
    state.failure = std::move(status);
    state.is_done = true;
    if (state.etag.empty()) state.etag = data.etag;
    state.real_bytes = data.object_size_bytes;
  }

  // A file that index.json names is not there.
  void lose(std::uint64_t tag) {
    ShardState& state = states_[tag / 2];
    if (state.is_done) return;
    const bool is_meta = is_split() && tag % 2 == 0;
    state.failure = Status(Code::kNotFound, fmt::format("{}is not there, index.json names it",
                                                        is_meta ? "its meta file " : ""));
    state.is_done = true;
  }

  Status take(const RangeData& data) {
    // Of a split shard the other file may still come.
    if (states_[data.tag / 2].is_done) return Status();
    if (!is_split()) return take_table(data);
    const std::size_t s = data.tag / 2;
    ShardState& state = states_[s];
    if (data.tag % 2 == 0) {
      HEADRACE_TRY(take_meta(s, data));
    } else {
      HEADRACE_TRY(check_size(s, data, index_.shards[s].basename, index_.shards[s].stored_bytes));
      if (data.length_bytes == 0 && index_.shards[s].stored_bytes > 0)
        return corrupt(
            "has no bytes");  // A size of 0 may also be one that the store does not tell.
      state.etag = data.etag;
      state.is_probed = true;
    }
    state.is_done = state.is_probed && !state.offsets.empty();
    return Status();
  }

  Status check_size(std::size_t s, const RangeData& data, const std::string& basename,
                    std::uint64_t bytes) const {
    if (data.object_size_bytes == 0 || data.object_size_bytes == bytes) return Status();
    const bool is_data = basename == index_.shards[s].basename;
    return Status(Code::kCorrupt,
                  fmt::format("{}has {} bytes, index.json says {}", is_data ? "" : "its meta file ",
                              data.object_size_bytes, bytes));
  }

  Status take_meta(std::size_t s, const RangeData& data) {
    const MdsMeta& meta = index_.shards[s].meta;
    ShardState& state = states_[s];
    HEADRACE_TRY(check_size(s, data, meta.basename, meta.stored_bytes));
    if (meta.raw_bytes > kMostMetaBytes || meta.stored_bytes > kMostMetaBytes)
      return corrupt(fmt::format("a meta file of more than {} bytes", kMostMetaBytes));
    if (state.meta.empty()) state.meta_etag = data.etag;
    const auto bytes = data.bytes();
    state.meta.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (state.meta.size() != state.requested_bytes)
      return corrupt(fmt::format("its meta file ends after {} bytes", state.meta.size()));
    if (state.requested_bytes < state.wanted_bytes) {
      request(s);
      return Status();
    }
    return read_meta(s);
  }

  // Like the front of an MDS shard; the offsets are those of lines in the data file.
  Status read_meta(std::size_t s) {
    const MdsShard& shard = index_.shards[s];
    ShardState& state = states_[s];
    std::vector<std::byte> inflated;
    auto table = std::as_bytes(std::span(state.meta));
    if (Status status = check_digest(shard.meta.hashes, table); !status.ok())
      return corrupt(fmt::format("its meta file: {}", status.message()));
    if (shard.compression != Compression::kNone) {
      inflated.resize(shard.meta.raw_bytes);
      Status status = inflate(shard.compression, table, inflated);
      if (!status.ok()) return corrupt(status.message());
      table = inflated;
    }
    const std::uint64_t table_bytes = mds_table_bytes(shard.sample_count);
    if (table.size() < table_bytes || load_le<std::uint32_t>(table.data()) != shard.sample_count)
      return corrupt("its meta file has another number of samples");
    append_mds_offsets(table.first(table_bytes), 0, state.offsets);
    state.meta = {};
    Status status = check_line_offsets(state.offsets, shard.raw_bytes);
    return status.ok() ? Status() : corrupt(status.message());
  }

  Status take_table(const RangeData& data) {
    const std::size_t s = data.tag / 2;
    const MdsShard& shard = index_.shards[s];
    ShardState& state = states_[s];
    const bool is_first = state.offsets.empty();
    if (data.object_size_bytes != 0 && data.object_size_bytes != shard.stored_bytes) {
      return corrupt(fmt::format("has {} bytes, index.json says {}", data.object_size_bytes,
                                 shard.stored_bytes));
    }
    const std::uint64_t offset =
        state.requested_bytes - std::min(state.requested_bytes, piece_length(state));
    if (offset + data.length_bytes != state.requested_bytes) {
      return corrupt(fmt::format("ends after {} bytes, index.json says {}",
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
      return corrupt(fmt::format("has {} samples, index.json says {}",
                                 load_le<std::uint32_t>(data.bytes().data()), shard.sample_count));
    }
    if (state.requested_bytes < state.wanted_bytes) {
      request(s);
      return Status();
    }
    state.is_done = true;
    Status status = check_mds_offsets(state.offsets, shard.raw_bytes);
    return status.ok() ? Status() : corrupt(status.message());
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
      return corrupt(fmt::format("has {} samples, index.json says {}", count, shard.sample_count));
    }
    if (first < mds_table_bytes(count) ||
        first + count * layout_.sample_bytes() != shard.raw_bytes) {
      return corrupt(fmt::format("{} samples of {} bytes from {} do not end at {}", count,
                                 layout_.sample_bytes(), first, shard.raw_bytes));
    }
    states_[s].offsets = {first, first + layout_.sample_bytes()};
    return Status();
  }

  Status emit(std::size_t s) {
    const MdsShard& shard = index_.shards[s];
    ShardState& state = states_[s];
    if (!state.failure.ok()) return emit_broken(s);
    context_.add_whole();
    ShardRecord record;
    record.sample_count = shard.sample_count;
    record.stored_bytes = shard.stored_bytes;
    record.raw_bytes = shard.raw_bytes;
    record.compression = shard.compression;
    record.has_bounds = is_split() || shard.compression == Compression::kNone;
    record.hashes = shard.hashes;
    record.first_object = writer_.object_count();
    if (record.has_bounds) record.bounds = writer_.bounds().append(state.offsets);
    writer_.add_object(shard.basename, state.etag, shard.stored_bytes);
    writer_.add_shard(record);
    state = ShardState{};
    state.is_done = true;
    return Status();
  }

  Status emit_broken(std::size_t s) {
    const MdsShard& shard = index_.shards[s];
    const ShardState state = std::exchange(states_[s], {});
    states_[s].is_done = true;
    const std::uint64_t size = state.real_bytes != 0 ? state.real_bytes : shard.stored_bytes;
    ObjectInfo object{.key = shard.basename, .size_bytes = size, .etag = state.etag};
    // Of a split shard the other file may be the broken one: no version of this one says that all
    // is as it was, so that the index is made anew each time.
    if (is_split() || state.failure.code() == Code::kNotFound)
      object = {.key = shard.basename, .size_bytes = 0, .etag = {}};
    HEADRACE_TRY(context_.leave_out(object, state.failure.clone(),
                                    KeptPlaces{writer_.sample_count(), shard.sample_count}));
    const ShardRecord record = broken_record(shard.sample_count, writer_.object_count());
    writer_.add_object(object.key, object.etag, object.size_bytes);
    writer_.add_shard(record);
    return Status();
  }

  static Status corrupt(std::string_view what) { return Status(Code::kCorrupt, std::string(what)); }

  const BuildContext& context_;
  const MdsIndex& index_;
  RangeFetcher& fetcher_;
  const MdsLayout layout_;
  std::vector<ShardState> states_;
  IndexWriter writer_;
  const std::uint64_t piece_bytes_;
  ReadWindow window_;
};

}  // namespace

Result<std::string> build_mds_index(const BuildContext& context, const MdsIndex& index,
                                    const IndexSource& source) {
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, {.call = context.call}));
  return MdsBuilder(context, index, *fetcher).run(source);
}

}  // namespace headrace::detail
