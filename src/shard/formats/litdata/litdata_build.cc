// A chunk goes through stages (Stage), each of which asks for one read; many chunks are under way
// at once, and their records are written in the order of the chunks, as the index needs it.
// ReadWindow bounds what unfinished ones hold.
//
// What a chunk needs depends on how it was written: a table of offsets at its front (plain),
// tables of zstd frames, the zstd head of each item, an Arrow file at its end, or nothing at all
// where it is sealed (wholly compressed or encrypted): then its items are found only when it has
// been read.
//
// index.json is compared with each chunk (size, number of items): it may be of another upload.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "shard/formats/litdata/chunk_reader.h"
#include "shard/formats/litdata/fernet.h"
#include "shard/formats/litdata/framed.h"
#include "shard/formats/litdata/item.h"
#include "shard/formats/litdata/litdata_driver.h"
#include "shard/formats/litdata/litdata_layout.h"
#include "shard/formats/table/ipc_table.h"
#include "shard/read_window.h"

namespace headrace::detail {
namespace {

using Kind = LitDataLayout::Kind;

// Chunks that are read at once; bounds the memory of unfinished ones and keeps the index in order.
constexpr std::size_t kChunkWindow = 256;
// Enough of a chunk to learn its size and version.
constexpr std::uint64_t kProbeBytes = 8;
// Items up to this size are read whole to see the zstd heads of several with one read.
constexpr std::uint64_t kSmallItemBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kHeadReadBytes = std::uint64_t{1} << 20;
// Rows of a record batch: `_DEFAULT_BATCH_ROWS` of litdata/streaming/item_loader.py, which finds a
// row by it.
constexpr std::uint64_t kRowsPerBatch = 256;
// Arrow's buffer compression does not say what it inflates to; text shrinks to a quarter or so.
constexpr std::uint64_t kGuessedRatio = 4;

// What is being read of a chunk.
enum class Stage { kHead, kFrames, kItemHeads, kToken, kFooter, kIpcFooter, kSchema, kDone };

struct ChunkState {
  Stage stage = Stage::kHead;
  std::vector<std::uint64_t> offsets;  // Of items, in the address space of the shard.
  std::vector<Frame> frames;
  std::uint64_t stored_bytes = 0;
  bool has_rows = false;
  ArrowSpan arrow;
  std::uint64_t read_begin = 0;
  std::size_t next_item = 0;  // First item whose zstd head is not yet known.
  std::size_t end_item = 0;   // End of those being read.
  std::string schema;
  Status failure;  // Of a broken chunk, which keeps its positions.
};

class LitDataBuilder {
 public:
  LitDataBuilder(const BuildContext& context, const LitDataIndex& index, ChunkReader& reader)
      : context_(context),
        index_(index),
        reader_(reader),
        states_(index.chunks.size()),
        window_(kChunkWindow, context.pool.limit_bytes()) {}

  Result<std::string> run(const IndexSource& source) {
    if (index_.encryption != ChunkEncryption::kNone) HEADRACE_TRY(derive_key());
    const std::size_t count = index_.chunks.size();
    std::size_t started = 0, finished = 0;
    while (finished < count) {
      for (; started < count && window_.has_room(cost_of(started)); ++started) {
        window_.begin(cost_of(started));
        start(started);
      }
      HEADRACE_TRY_ASSIGN(const std::size_t c, reader_.next());
      Status status = reader_.check(c);
      if (status.ok()) status = advance(c);
      if (!status.ok() && !blames_shard(status.code()))
        return std::move(status).annotate(context_.store.object_url(index_.chunks[c].filename));
      if (!status.ok()) {
        states_[c].failure = std::move(status);
        HEADRACE_TRY(finish(c));
      }
      for (; finished < count && states_[finished].stage == Stage::kDone; ++finished) {
        window_.end(cost_of(finished));
        HEADRACE_TRY(emit(finished));
        context_.report(finished + 1, count);
      }
    }
    HEADRACE_TRY(describe());
    return writer_.finish({.format = Format::kLitData,
                           .columns = columns_,
                           .source = source,
                           .block_bytes = context_.options.block_bytes,
                           .layout = format_litdata_layout(layout_),
                           .broken = context_.left_out()});
  }

 private:
  Status derive_key() {
    const DatasetOptions& options = context_.options;
    layout_.encryption = index_.encryption;
    if (options.password.empty()) {
      return Status(Code::kDenied, fmt::format("{}: is encrypted; password= and password_salt= of "
                                               "litdata's key file open it",
                                               context_.store.url()));
    }
    HEADRACE_TRY_ASSIGN(auto key, FernetKey::derive(options.password, options.password_salt));
    key_ = key;
    return Status();
  }

  bool is_whole_zstd(std::size_t c) const {
    return index_.storage == ChunkStorage::kChunkZstd && is_zstd_chunk(index_.chunks[c].filename);
  }
  // Whether items can only be found once the whole chunk was read and made ready.
  bool is_sealed(std::size_t c) const {
    return is_whole_zstd(c) || index_.encryption == ChunkEncryption::kChunk;
  }

  // Bytes that a chunk holds while it is read: its table as it was read, its offsets, its frames.
  std::uint64_t cost_of(std::size_t c) const {
    if (is_sealed(c) || index_.has_tokens) return 0;
    return (sizeof(std::uint32_t) + sizeof(std::uint64_t) + sizeof(Frame)) *
           (std::uint64_t{index_.chunks[c].item_count} + 1);
  }

  void read(std::size_t c, Stage stage, std::uint64_t begin, std::uint64_t length_bytes) {
    states_[c].stage = stage;
    states_[c].read_begin = begin;
    reader_.start(c, begin, length_bytes);
  }

  void start(std::size_t c) {
    const LitDataChunk& chunk = index_.chunks[c];
    std::uint64_t length = chunk_table_bytes(chunk.item_count);
    if (index_.storage == ChunkStorage::kFramed) length = kFramedHeadBytes;
    if (is_sealed(c) || index_.has_tokens) length = kProbeBytes;
    read(c, Stage::kHead, 0, length);
  }

  Status advance(std::size_t c) {
    switch (states_[c].stage) {
      case Stage::kHead:
        return take_head(c);
      case Stage::kFrames:
        return take_frames(c);
      case Stage::kItemHeads:
        return take_item_heads(c);
      case Stage::kToken:
        return take_token(c);
      case Stage::kFooter:
        return take_footer(c);
      case Stage::kIpcFooter:
        return take_ipc_footer(c);
      case Stage::kSchema:
        states_[c].schema = to_string(reader_.bytes(c));
        return finish(c);
      case Stage::kDone:
        break;
    }
    return Status(Code::kInternal, "a chunk was read after it was done");
  }

  static std::string to_string(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  Status finish(std::size_t c) {
    states_[c].stage = Stage::kDone;
    reader_.release(c);
    return Status();
  }

  Status learn_size(std::size_t c) {
    const LitDataChunk& chunk = index_.chunks[c];
    std::uint64_t bytes = reader_.object_bytes(c);
    if (bytes == 0) {
      HEADRACE_TRY_ASSIGN(const ObjectInfo info,
                          context_.store.head(chunk.filename, context_.call));
      bytes = info.size_bytes;
    }
    if (!is_whole_zstd(c) && bytes != chunk.chunk_bytes) {
      return Status(Code::kCorrupt,
                    fmt::format("has {} bytes, index.json says {}", bytes, chunk.chunk_bytes));
    }
    states_[c].stored_bytes = bytes;
    return Status();
  }

  Status take_head(std::size_t c) {
    HEADRACE_TRY(learn_size(c));
    const LitDataChunk& chunk = index_.chunks[c];
    ChunkState& state = states_[c];
    if (is_sealed(c)) return finish(c);
    if (index_.has_tokens) return take_token_head(c);
    if (index_.storage == ChunkStorage::kFramed) {
      HEADRACE_TRY_ASSIGN(const FramedHead head, parse_framed_head(reader_.bytes(c)));
      if (head.item_count != chunk.item_count) {
        return Status(Code::kCorrupt, fmt::format("has {} items, index.json says {}",
                                                  head.item_count, chunk.item_count));
      }
      read(c, Stage::kFrames, 0, head.table_bytes());
      return Status();
    }
    HEADRACE_TRY_ASSIGN(state.offsets,
                        parse_chunk_table(reader_.bytes(c), chunk.item_count, chunk.chunk_bytes));
    if (chunk.item_count == 0) return finish(c);
    if (index_.storage == ChunkStorage::kItemZstd) {
      read_item_heads(c);
      return Status();
    }
    if (index_.encryption == ChunkEncryption::kItem) {
      read(c, Stage::kToken, state.offsets[0],
           std::max<std::uint64_t>(1, state.offsets[1] - state.offsets[0]));
      return Status();
    }
    // Items have bytes (the sizes of their leaves at least), unless their rows are elsewhere.
    const bool has_items = state.offsets.back() > state.offsets.front();
    if (has_items || chunk.chunk_bytes < state.offsets[0] + kArrowFooterBytes + kIpcTailBytes)
      return finish(c);
    constexpr std::uint64_t kLength = kArrowFooterBytes + kIpcTailBytes;
    read(c, Stage::kFooter, chunk.chunk_bytes - kLength, kLength);
    return Status();
  }

  Status take_token_head(std::size_t c) {
    const LitDataChunk& chunk = index_.chunks[c];
    const auto bytes = reader_.bytes(c);
    std::uint32_t words[2];
    std::memcpy(words, bytes.data(), sizeof(words));
    const std::uint64_t begin = chunk_table_bytes(chunk.item_count);
    if (words[0] != chunk.item_count || words[1] != begin) {
      return Status(Code::kCorrupt,
                    fmt::format("begins with {} items at byte {}; {} at {} are expected", words[0],
                                words[1], chunk.item_count, begin));
    }
    return finish(c);
  }

  Status take_frames(std::size_t c) {
    HEADRACE_TRY_ASSIGN(auto tables,
                        parse_framed_tables(reader_.bytes(c), index_.chunks[c].chunk_bytes));
    states_[c].offsets = std::move(tables.offsets);
    states_[c].frames = std::move(tables.frames);
    return finish(c);
  }

  // Reads a run of items, up to the zstd head of its last one.
  void read_item_heads(std::size_t c) {
    ChunkState& state = states_[c];
    const auto& offsets = state.offsets;
    std::size_t i = state.next_item;
    const std::uint64_t begin = offsets[i];
    while (i + 1 < offsets.size() - 1 && offsets[i + 1] - offsets[i] <= kSmallItemBytes &&
           offsets[i + 1] - begin <= kHeadReadBytes) {
      ++i;
    }
    state.end_item = i + 1;
    const std::uint64_t end = std::min(offsets[i] + kZstdHeadBytes, offsets[i + 1]);
    read(c, Stage::kItemHeads, begin, std::max<std::uint64_t>(1, end - begin));
  }

  Status take_item_heads(std::size_t c) {
    ChunkState& state = states_[c];
    const auto bytes = reader_.bytes(c);
    for (std::size_t i = state.next_item; i < state.end_item; ++i) {
      Frame frame;
      frame.stored_begin = state.offsets[i];
      frame.stored_bytes = state.offsets[i + 1] - state.offsets[i];
      const std::uint64_t at = frame.stored_begin - state.read_begin;
      const auto head = bytes.subspan(at, std::min(frame.stored_bytes, bytes.size() - at));
      const auto size = zstd_content_bytes(head);
      if (!size || *size >> 32 != 0) {
        return Status(Code::kCorrupt,
                      fmt::format("item {} is no zstd frame that tells its size below 2^32", i));
      }
      frame.raw_bytes = *size;
      frame.raw_begin = i == 0 ? 0 : state.frames.back().raw_begin + state.frames.back().raw_bytes;
      frame.first_sample = i;
      state.frames.push_back(frame);
    }
    state.next_item = state.end_item;
    if (state.next_item < index_.chunks[c].item_count) {
      read_item_heads(c);
      return Status();
    }
    for (std::size_t i = 0; i < state.frames.size(); ++i)
      state.offsets[i] = state.frames[i].raw_begin;
    state.offsets.back() = state.frames.back().raw_begin + state.frames.back().raw_bytes;
    return finish(c);
  }

  // The first item of a chunk tells whether the password fits.
  Status take_token(std::size_t c) {
    ChunkState& state = states_[c];
    const auto token = reader_.bytes(c);
    std::vector<std::byte> plain(token.size());
    if (!key_->decrypt(token, plain))
      return Status(Code::kDenied, "the password does not fit (or its first sample is damaged)");
    const std::uint64_t first = state.offsets[0];
    for (std::size_t i = 0; i + 1 < state.offsets.size(); ++i) {
      const std::uint64_t size = state.offsets[i + 1] - state.offsets[i];
      state.frames.push_back({state.offsets[i], size, state.offsets[i] - first, size, i});
    }
    for (std::uint64_t& offset : state.offsets) offset -= first;
    return finish(c);
  }

  Status take_footer(std::size_t c) {
    ChunkState& state = states_[c];
    const auto bytes = reader_.bytes(c);
    const auto arrow = parse_arrow_footer(bytes.last(kArrowFooterBytes), state.stored_bytes);
    if (!arrow) return finish(c);
    state.has_rows = true;
    state.arrow = *arrow;
    HEADRACE_TRY_ASSIGN(const std::uint64_t length,
                        ipc_footer_bytes(bytes.first(kIpcTailBytes), arrow->length_bytes));
    read(c, Stage::kIpcFooter, arrow->offset_bytes + arrow->length_bytes - length, length);
    return Status();
  }

  Status take_ipc_footer(std::size_t c) {
    ChunkState& state = states_[c];
    HEADRACE_TRY_ASSIGN(const IpcFooter footer,
                        parse_ipc_footer(reader_.bytes(c), state.arrow.length_bytes));
    const std::uint64_t rows = index_.chunks[c].item_count;
    if (!footer.dictionaries.empty() ||
        footer.batches.size() != (rows + kRowsPerBatch - 1) / kRowsPerBatch) {
      return Status(Code::kUnsupported,
                    fmt::format("Arrow rows in {} batches and {} dictionaries; batches of {} rows "
                                "and no dictionary are read",
                                footer.batches.size(), footer.dictionaries.size(), kRowsPerBatch));
    }
    std::uint64_t raw = 0, end = 0;
    for (std::size_t b = 0; b < footer.batches.size(); ++b) {
      const IpcBlock& batch = footer.batches[b];
      if (b > 0 && batch.offset_bytes != end)
        return Status(Code::kUnsupported, "Arrow rows with room between their batches");
      end = batch.end_bytes();
      const std::uint64_t stored = end - batch.offset_bytes;
      const std::uint64_t guess = stored * (index_.has_ipc_compression ? kGuessedRatio : 1);
      state.frames.push_back(
          {state.arrow.offset_bytes + batch.offset_bytes, stored, raw, guess, b * kRowsPerBatch});
      raw += guess;
    }
    if (footer.schema_end_bytes <= kIpcHeadBytes)
      return Status(Code::kCorrupt, "Arrow rows without a schema");
    read(c, Stage::kSchema, state.arrow.offset_bytes + kIpcHeadBytes,
         footer.schema_end_bytes - kIpcHeadBytes);
    return Status();
  }

  Status emit(std::size_t c) {
    const LitDataChunk& chunk = index_.chunks[c];
    ChunkState state = std::move(states_[c]);
    states_[c].stage = Stage::kDone;
    ShardRecord record;
    record.sample_count = chunk.item_count;
    record.stored_bytes = state.stored_bytes;
    record.raw_bytes = chunk.chunk_bytes;
    record.first_object = writer_.object_count();
    if (index_.has_tokens && state.failure.ok()) state.failure = place_tokens(c, record);
    if (!state.failure.ok()) return emit_broken(c, std::move(state));
    context_.add_whole();
    if (index_.has_tokens) {
      // Placed.
    } else if (is_sealed(c)) {
      record.has_bounds = false;
      const bool is_plain = index_.encryption == ChunkEncryption::kNone;
      record.compression = is_plain ? Compression::kZstd : Compression::kOwn;
    } else if (!state.has_rows) {
      record.bounds = writer_.bounds().append(state.offsets);
    }
    if (!state.frames.empty()) {
      record.raw_bytes = state.frames.back().raw_begin + state.frames.back().raw_bytes;
      record.frame_count = static_cast<std::uint32_t>(state.frames.size());
      record.first_frame = writer_.add_frames(state.frames);
      record.compression = Compression::kZstd;
      if (index_.encryption == ChunkEncryption::kItem) record.compression = Compression::kOwn;
      if (state.has_rows) record.compression = Compression::kUnpacked;
      record.has_bounds = !state.has_rows;
    }
    if (!index_.has_tokens && chunk.item_count > 0) HEADRACE_TRY(note_kind(c, state));
    layout_.schema_of_shard.push_back(schema_number(state));
    writer_.add_object(chunk.filename, reader_.etag(c), state.stored_bytes);
    writer_.add_shard(record);
    return Status();
  }

  Status emit_broken(std::size_t c, ChunkState state) {
    const LitDataChunk& chunk = index_.chunks[c];
    const std::uint64_t per_sample = context_.options.tokens_per_sample;
    const std::uint64_t count =
        index_.has_tokens ? chunk.token_count / per_sample : chunk.item_count;
    const std::uint64_t value_bytes = index_.has_tokens ? per_sample * token_bytes_ : 0;
    const std::uint64_t size =
        reader_.object_bytes(c) != 0 ? reader_.object_bytes(c) : chunk.chunk_bytes;
    const bool is_there = state.failure.code() != Code::kNotFound;
    HEADRACE_TRY(context_.leave_out({.key = chunk.filename,
                                     .size_bytes = is_there ? size : 0,
                                     .etag = is_there ? reader_.etag(c) : std::string()},
                                    std::move(state.failure),
                                    KeptPlaces{writer_.sample_count(), count}));
    const ShardRecord record = broken_record(count, writer_.object_count(), value_bytes);
    layout_.schema_of_shard.push_back(0);
    writer_.add_object(chunk.filename, reader_.etag(c), size);
    writer_.add_shard(record);
    return Status();
  }

  Status place_tokens(std::size_t c, ShardRecord& record) const {
    const LitDataChunk& chunk = index_.chunks[c];
    const std::uint64_t begin = chunk_table_bytes(chunk.item_count);
    // Both are below 2^32.
    if (begin + chunk.token_count * token_bytes_ > chunk.chunk_bytes) {
      return Status(Code::kCorrupt,
                    fmt::format("{} tokens of {} bytes from byte {} are more than its {} bytes",
                                chunk.token_count, token_bytes_, begin, chunk.chunk_bytes));
    }
    const std::uint64_t per_sample = context_.options.tokens_per_sample;
    record.sample_count = chunk.token_count / per_sample;
    record.bounds = {.base = begin, .stride = per_sample * token_bytes_, .first_group = kNoGroups};
    if (is_whole_zstd(c)) record.compression = Compression::kZstd;
    return Status();
  }

  // Rows and items have different columns, so that a dataset has only one of them.
  Status note_kind(std::size_t c, const ChunkState& state) {
    const Kind kind = state.has_rows ? Kind::kRows : Kind::kItems;
    if (has_kind_ && kind != layout_.kind) {
      return Status(Code::kUnsupported,
                    fmt::format("{}: holds {}, chunks before it the other; litdata wrote its rows "
                                "in two ways, write the dataset anew",
                                context_.store.object_url(index_.chunks[c].filename),
                                state.has_rows ? "Arrow rows" : "items without Arrow"));
    }
    has_kind_ = true;
    layout_.kind = kind;
    return Status();
  }

  std::uint32_t schema_number(const ChunkState& state) {
    if (!state.has_rows) return 0;
    const auto next = static_cast<std::uint32_t>(layout_.schemas.size());
    const auto [entry, is_new] = schema_numbers_.try_emplace(state.schema, next);
    if (is_new) layout_.schemas.push_back({state.schema, {}});
    return entry->second;
  }

  // Columns, once it is known what the chunks hold.
  Status describe() {
    if (index_.has_tokens) {
      layout_.kind = Kind::kTokens;
      layout_.tokens_per_sample = context_.options.tokens_per_sample;
      return Status();
    }
    if (layout_.kind == Kind::kRows) return describe_rows();
    auto columns = litdata_columns(index_, context_.options.allow_unsafe);
    if (!columns) return std::move(columns).error().annotate(context_.store.url());
    columns_ = *std::move(columns);
    return Status();
  }

  Status describe_rows() {
    std::vector<std::string> names;  // Rows that are dicts with another order of keys come by name.
    std::vector<TablePlan> plans;
    for (const RowSchema& schema : layout_.schemas) {
      HEADRACE_TRY_ASSIGN(TablePlan plan, describe_schema(schema, names, {}));
      if (plans.empty())
        for (const Column& column : plan.columns) names.push_back(column.name);
      plans.push_back(std::move(plan));
    }
    if (plans.empty()) return Status();
    columns_ = known_columns(plans);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      RowSchema& schema = layout_.schemas[i];
      if (!plans[i].unknown.empty()) {
        HEADRACE_TRY_ASSIGN(plans[i], describe_schema(schema, names, columns_));
      }
      if (!same_columns(columns_, plans[i].columns)) {
        return Status(Code::kUnsupported,
                      fmt::format("{}: chunks hold Arrow rows with different columns or types; "
                                  "write the dataset anew with rows of one type",
                                  context_.store.url()));
      }
      schema.spec = std::move(plans[i].spec);
    }
    name_numbers(columns_);
    return Status();
  }

  Result<TablePlan> describe_schema(const RowSchema& schema, std::span<const std::string> names,
                                    std::span<const Column> likes) const {
    auto plan = describe_ipc(std::as_bytes(std::span(schema.message)), names, likes);
    if (!plan) return std::move(plan).error().annotate(context_.store.url());
    return plan;
  }

  // litdata types each chunk by its own rows: where a column is None, or an empty list, in all rows
  // of a chunk, another chunk says what it is.
  static std::vector<Column> known_columns(const std::vector<TablePlan>& plans) {
    std::vector<Column> columns = plans[0].columns;
    const auto is_known = [](const TablePlan& plan, const std::string& name) {
      return std::find(plan.unknown.begin(), plan.unknown.end(), name) == plan.unknown.end();
    };
    for (Column& column : columns) {
      const Column* better = nullptr;
      for (const TablePlan& plan : plans) {
        const auto found = std::find_if(plan.columns.begin(), plan.columns.end(),
                                        [&](const Column& c) { return c.name == column.name; });
        if (found == plan.columns.end()) continue;
        // Of None and empty lists the lists say more.
        const bool is_list = better != nullptr && better->encoding == "str" &&
                             found->encoding == "json" && !is_known(plan, column.name);
        if (better == nullptr || is_list) better = &*found;
        if (is_known(plan, column.name)) {
          better = &*found;
          break;
        }
      }
      if (better != nullptr) column = *better;
    }
    return columns;
  }

  // Numbers of rows become the Python types that numbers of items do.
  static void name_numbers(std::vector<Column>& columns) {
    for (Column& column : columns) {
      if (!column.shape.empty()) continue;
      if (column.dtype == "int64") column.encoding = "int";
      if (column.dtype == "float64") column.encoding = "float";
      if (column.dtype == "bool") column.encoding = "bool";
    }
  }

  static bool same_columns(const std::vector<Column>& a, const std::vector<Column>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Column& x, const Column& y) {
      return x.name == y.name && x.encoding == y.encoding && x.dtype == y.dtype &&
             x.shape == y.shape && x.fixed_size_bytes == y.fixed_size_bytes;
    });
  }

 public:
  /// Sets the column of a token dataset. Errors: kInvalidArgument (tokens_per_sample is missing or
  /// too large), those of headless_dtype().
  Status describe_tokens() {
    const std::uint64_t per_sample = context_.options.tokens_per_sample;
    if (per_sample == 0 || per_sample >> 32 != 0) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: tokens of LitData have no length of a sample of their own; "
                                "say it with tokens_per_sample= (block_size of TokensLoader)",
                                context_.store.url()));
    }
    HEADRACE_TRY_ASSIGN(const LeafDtype dtype, headless_dtype(index_.leaf_formats[0]));
    token_bytes_ = dtype.size_bytes;
    Column column;
    column.name = index_.leaf_names[0];
    column.encoding = fmt::format("array:{}", dtype.name);
    column.dtype = dtype.name;
    column.shape = {per_sample};
    column.fixed_size_bytes = per_sample * dtype.size_bytes;
    columns_ = {std::move(column)};
    return Status();
  }

 private:
  const BuildContext& context_;
  const LitDataIndex& index_;
  ChunkReader& reader_;
  std::vector<ChunkState> states_;
  ReadWindow window_;
  std::optional<FernetKey> key_;
  std::uint64_t token_bytes_ = 0;
  std::vector<Column> columns_;
  LitDataLayout layout_;
  bool has_kind_ = false;
  std::map<std::string, std::uint32_t> schema_numbers_;
  IndexWriter writer_;
};

}  // namespace

Result<std::string> build_litdata_index(const BuildContext& context, std::string_view json,
                                        const IndexSource& source) {
  auto index = parse_litdata_index(json);
  if (!index) return std::move(index).error().annotate(context.store.url());
  std::vector<std::string_view> keys;
  for (const LitDataChunk& chunk : index->chunks) keys.push_back(chunk.filename);
  HEADRACE_TRY_ASSIGN(ChunkReader reader, ChunkReader::create(context, keys));
  LitDataBuilder builder(context, *index, reader);
  if (index->has_tokens) HEADRACE_TRY(builder.describe_tokens());
  return builder.run(source);
}

}  // namespace headrace::detail
