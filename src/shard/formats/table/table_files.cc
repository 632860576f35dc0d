// A file's way: its tail; for Parquet the rest of the footer where the tail was too short, for
// Arrow the schema and the head of each record batch; a file without a tail is looked at as a
// stream, from the front on. One fetcher has the reads of all files, tagged with file and piece.
//
// Invariants:
// - reads_left counts the reads of a file that are under way or about to be: whoever starts one
//   adds to it, and the file is done when it is 0. A broken file still takes its answers, and does
//   nothing with them.
// - Files come in the order of the network. Nothing may depend on that: heads get their numbers,
//   columns their names and the first difference its message in the order of the files
//   (number_heads()), so the same objects give the same index, byte for byte.
// - What is cut into blocks is fixed (kJoinBytes), as positions and the fingerprint depend on it.
// - The kind that the first answer has is everybody's: a table has one kind.
// - Offsets and counts of a footer are hostile until the parser has checked them against the file's
//   size; what is charged as unpacked_bytes may be too little for compressed Arrow, which unpacking
//   checks again.
#include "shard/formats/table/table_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/endian.h"
#include "shard/formats/table/ipc_message.h"
#include "shard/formats/table/parquet_footer.h"

namespace headrace::detail {
namespace {

// A footer rarely is larger, so that one read does; pyarrow reads as much at first.
constexpr std::uint64_t kTailBytes = std::uint64_t{64} << 10;
// Row groups and record batches below this are joined to one block: a request costs about as long
// as 1 MiB takes (10 ms and 90 MB/s a connection). Part of the fingerprint, so not of block_bytes.
constexpr std::uint64_t kJoinBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostRows = 0xffff'ffffULL;

// Pieces of a file, the low half of a read's tag.
constexpr std::uint64_t kTail = 0, kFooter = 1, kSchema = 2, kStream = 3, kFirstBatch = 4;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Adds `part` to the last of `parts` while both are small, else appends it.
void append_part(std::vector<TablePart>& parts, TablePart part) {
  if (part.row_count == 0) return;
  TablePart* last = parts.empty() ? nullptr : &parts.back();
  if (last == nullptr || last->stored_bytes + part.stored_bytes > kJoinBytes ||
      last->row_count + part.row_count > kMostRows) {
    parts.push_back(std::move(part));
    return;
  }
  last->row_count += part.row_count;
  last->stored_bytes += part.stored_bytes;
  last->unpacked_bytes += part.unpacked_bytes;
  for (ParquetRowGroup& group : part.record.row_groups)
    last->record.row_groups.push_back(std::move(group));
  for (const TableRange& range : part.record.messages) last->record.messages.push_back(range);
}

TablePart parquet_part(ParquetRowGroup& group, const std::vector<std::uint32_t>& chosen) {
  TablePart part;
  part.row_count = group.row_count;
  ParquetRowGroup kept;
  kept.row_count = group.row_count;
  for (const std::uint32_t leaf : chosen) {
    ParquetChunk& chunk = group.chunks[leaf];
    part.stored_bytes += chunk.length_bytes;
    part.unpacked_bytes += chunk.unpacked_bytes;
    kept.chunks.push_back(std::move(chunk));
  }
  part.record.row_groups.push_back(std::move(kept));
  return part;
}

bool is_same(const Column& a, const Column& b) {
  return a.name == b.name && a.encoding == b.encoding && a.dtype == b.dtype && a.shape == b.shape &&
         a.fixed_size_bytes == b.fixed_size_bytes;
}

std::string type_of(const Column& column) {
  if (!column.dtype.empty()) return fmt::format("{} ({})", column.encoding, column.dtype);
  return column.fixed_size_bytes == 0
             ? column.encoding
             : fmt::format("{} ({} each)", column.encoding, column.fixed_size_bytes);
}

// What is different, for a message: column of `other` against `first`.
std::string difference(const std::vector<Column>& first, const std::vector<Column>& other) {
  for (const Column& column : first) {
    const auto found = std::find_if(other.begin(), other.end(),
                                    [&](const Column& c) { return c.name == column.name; });
    if (found == other.end()) return fmt::format("has no column '{}'", column.name);
    if (!is_same(*found, column))
      return fmt::format("column '{}' is {}, not {}", column.name, type_of(*found),
                         type_of(column));
  }
  for (const Column& column : other) {
    if (std::none_of(first.begin(), first.end(),
                     [&](const Column& c) { return c.name == column.name; }))
      return fmt::format("has the column '{}' besides", column.name);
  }
  return "has the same columns in another order";
}

// Of all columns that have a fixed width; at most kMostBytes, which no memory holds.
std::uint64_t fixed_bytes(const std::vector<Column>& columns, std::uint64_t row_count) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;
  std::uint64_t width = 0;
  for (const Column& column : columns) width += column.fixed_size_bytes;
  return width > kMostBytes / std::max<std::uint64_t>(row_count, 1) ? kMostBytes
                                                                    : width * row_count;
}

TablePart ipc_part(const IpcStreamMessage& message, const std::vector<Column>& columns) {
  const IpcBlock& block = message.block;
  TablePart part;
  part.row_count = message.batch.row_count;
  part.stored_bytes = block.end_bytes() - block.offset_bytes;
  // The batch is copied before it is read. What a compressed one inflates to is known for columns
  // of a fixed width; table_dataset.cc looks at the rest before it is unpacked.
  const bool is_compressed = message.batch.is_compressed;
  const std::uint64_t fixed = is_compressed ? fixed_bytes(columns, part.row_count) : 0;
  part.unpacked_bytes = block.body_bytes + std::max(block.body_bytes, fixed);
  part.record.messages.push_back({block.offset_bytes, part.stored_bytes});
  return part;
}

// A column of numbers, if there is one.
std::uint32_t narrow_leaf(const std::vector<ParquetLeaf>& leaves) {
  constexpr std::int32_t kByteArray = 6;
  const auto narrow = std::find_if(leaves.begin(), leaves.end(), [](const ParquetLeaf& leaf) {
    return leaf.physical_type < kByteArray;
  });
  return narrow == leaves.end() ? 0 : static_cast<std::uint32_t>(narrow - leaves.begin());
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

void TableFiles::start(std::size_t file, std::uint64_t piece, std::uint64_t offset_bytes,
                       std::uint64_t length_bytes) {
  const ObjectInfo& object = objects_[file];
  fetcher_->start({.key = object.key,
                   .etag = object.etag,
                   .offset_bytes = offset_bytes,
                   .length_bytes = length_bytes,
                   .tag = static_cast<std::uint64_t>(file) << 32 | piece});
}

Status TableFiles::read_all() {
  HEADRACE_TRY_ASSIGN(fetcher_,
                      RangeFetcher::create(context_.store, context_.pool, {.call = context_.call}));
  std::size_t done = 0, next = 0;
  while (done < files_.size()) {
    // A file's later reads go before the next file's first.
    while (next < files_.size() && fetcher_->pending() < RangeFetcher::kMostInFlight) {
      const std::uint64_t size = objects_[next].size_bytes;
      const std::uint64_t length = std::min(size, context_.read_bytes(kTailBytes));
      if (length == 0) {
        HEADRACE_TRY(settle(next++, Status(Code::kCorrupt, "an empty file")));
        context_.report(++done, files_.size());
        continue;
      }
      files_[next].reads_left = 1;
      start(next++, kTail, size - length, length);
    }
    if (fetcher_->pending() == 0) continue;
    HEADRACE_TRY_ASSIGN(const RangeData data, fetcher_->next());
    const auto file = static_cast<std::size_t>(data.tag >> 32);
    if (!files_[file].is_broken) HEADRACE_TRY(settle(file, take(data)));
    if (--files_[file].reads_left == 0) {
      if (!files_[file].is_broken && kind_ == TableKind::kIpc) finish_ipc(files_[file]);
      context_.report(++done, files_.size());
    }
  }
  return number_heads();
}

Status TableFiles::settle(std::size_t file, Status status) {
  if (status.ok()) return status;
  files_[file].is_broken = true;
  return context_.leave_out(objects_[file], std::move(status));
}

Status TableFiles::take(const RangeData& data) {
  const auto file = static_cast<std::size_t>(data.tag >> 32);
  const std::uint64_t piece = data.tag & 0xffff'ffffULL;
  if (piece == kTail) return take_tail(file, data);
  if (piece == kFooter) return take_footer(file, data.bytes());
  if (piece == kStream) return take_stream(file, data);
  return take_message(file, piece, data.bytes());
}

Status TableFiles::take_tail(std::size_t file, const RangeData& data) {
  const std::uint64_t size = objects_[file].size_bytes;
  const auto tail = data.bytes();
  const bool is_ipc = as_text(tail).ends_with("ARROW1");
  auto footer_bytes = is_ipc ? ipc_footer_bytes(tail, size) : parquet_footer_bytes(tail, size);
  if (!footer_bytes && footer_bytes.error().code() == Code::kCorrupt) {
    // It may be a stream, which has no tail.
    files_[file].no_tail = std::move(footer_bytes).error();
    ++files_[file].reads_left;
    start(file, kStream, 0, std::min(size, context_.read_bytes(kTailBytes)));
    return Status();
  }
  HEADRACE_TRY(agree_on(is_ipc ? TableKind::kIpc : TableKind::kParquet));
  if (!footer_bytes) return std::move(footer_bytes).error();
  if (*footer_bytes <= tail.size()) return take_footer(file, tail.last(*footer_bytes));
  ++files_[file].reads_left;
  start(file, kFooter, size - *footer_bytes, *footer_bytes);
  return Status();
}

Status TableFiles::agree_on(TableKind kind) {
  if (!is_kind_known_) kind_ = kind;
  is_kind_known_ = true;
  if (kind == kind_) return Status();
  return Status(Code::kInvalidArgument,
                "Parquet and Arrow files in one table; name the files of one kind");
}

Status TableFiles::take_stream(std::size_t file, const RangeData& data) {
  File& out = files_[file];
  const std::uint64_t size = objects_[file].size_bytes;
  if (!out.stream) {
    if (as_text(data.bytes()).starts_with("ARROW1"))
      return Status(Code::kCorrupt, "Arrow file: does not end with ARROW1 (truncated?)");
    if (!looks_like_ipc_stream(data.bytes())) return std::move(out.no_tail);
    HEADRACE_TRY(agree_on(TableKind::kIpc));
    HEADRACE_TRY(refuse_where());
    out.stream = std::make_unique<IpcStreamScan>(size);
  }
  HEADRACE_TRY(out.stream->feed(data.bytes()));
  if (out.stream->is_done()) return take_schema(file, as_bytes(out.stream->schema()));
  // Small messages are found many at a time, large bodies are hopped over.
  const std::uint64_t at = out.stream->offset_bytes();
  const std::uint64_t length =
      std::max(out.stream->needed_bytes(), context_.read_bytes(kTailBytes));
  ++out.reads_left;
  start(file, kStream, at, std::min(size - at, length));
  return Status();
}

// A schema message as it comes first in a stream. Polars leaves out the frame in its files.
Status TableFiles::take_schema(std::size_t file, std::span<const std::byte> message) {
  std::string framed;
  if (message.size() >= 4 && load_le<std::uint32_t>(message.data()) != kContinuation) {
    const auto padded = static_cast<std::uint32_t>((message.size() + 7) / 8 * 8);
    framed.resize(kMessagePrefixBytes);
    store_le(reinterpret_cast<std::byte*>(framed.data()), kContinuation);
    store_le(reinterpret_cast<std::byte*>(framed.data() + 4), padded);
    framed += as_text(message);
    framed.resize(kMessagePrefixBytes + padded);
    message = as_bytes(framed);
  }
  HEADRACE_TRY_ASSIGN(files_[file].head,
                      head_of(std::string(as_text(message)), {},
                              {.kind = table_kind_name(TableKind::kIpc), .head = message}));
  return Status();
}

Status TableFiles::refuse_where() const {
  if (context_.options.row_groups_where.empty()) return Status();
  return Status(Code::kUnsupported, "row_groups_where: Arrow files have no statistics");
}

Status TableFiles::take_footer(std::size_t file, std::span<const std::byte> footer) {
  return kind_ == TableKind::kIpc ? take_ipc(file, footer) : take_parquet(file, footer);
}

Status TableFiles::take_parquet(std::size_t file, std::span<const std::byte> bytes) {
  HEADRACE_TRY_ASSIGN(ParquetFooter footer, parse_parquet_footer(bytes, objects_[file].size_bytes));
  const std::string plain = compose_parquet_footer(footer.head, {}, footer.leaves, {});
  const std::string annotated =
      compose_parquet_footer(footer.head, footer.key_values, footer.leaves, {});
  HEADRACE_TRY_ASSIGN(const Head* head, head_of(footer.head, footer.key_values,
                                                {.kind = table_kind_name(TableKind::kParquet),
                                                 .head = std::as_bytes(std::span(plain)),
                                                 .annotated = std::as_bytes(std::span(annotated)),
                                                 .common = common_}));
  File& out = files_[file];
  out.head = head;
  std::vector<bool> kept(footer.row_groups.size(), true);
  if (const std::string& where = context_.options.row_groups_where; !where.empty()) {
    const std::string whole = fmt::format("PAR1{}", as_text(bytes));
    HEADRACE_TRY_ASSIGN(
        kept, prune_row_groups(std::as_bytes(std::span(whole)), where, footer.row_groups.size()));
  }
  for (std::size_t g = 0; g < footer.row_groups.size(); ++g) {
    if (kept[g]) append_part(out.parts, parquet_part(footer.row_groups[g], head->head.chosen));
  }
  // Gaps that are read, too.
  for (TablePart& part : out.parts)
    part.stored_bytes = plan_fetch(ranges_of(part.record)).buffer_bytes;
  return Status();
}

Status TableFiles::take_ipc(std::size_t file, std::span<const std::byte> bytes) {
  HEADRACE_TRY(refuse_where());
  File& out = files_[file];
  HEADRACE_TRY_ASSIGN(out.ipc, parse_ipc_footer(bytes, objects_[file].size_bytes));
  out.batches.resize(out.ipc.batches.size());
  start(file, kSchema, kIpcHeadBytes, out.ipc.schema_end_bytes - kIpcHeadBytes);
  for (std::size_t b = 0; b < out.ipc.batches.size(); ++b)
    start(file, kFirstBatch + b, out.ipc.batches[b].offset_bytes,
          out.ipc.batches[b].metadata_bytes);
  out.reads_left += 1 + out.ipc.batches.size();
  return Status();
}

Status TableFiles::take_message(std::size_t file, std::uint64_t piece,
                                std::span<const std::byte> bytes) {
  File& out = files_[file];
  if (piece == kSchema) return take_schema(file, bytes);
  HEADRACE_TRY_ASSIGN(out.batches[piece - kFirstBatch], parse_ipc_batch(bytes));
  return Status();
}

void TableFiles::finish_ipc(File& file) {
  std::vector<IpcStreamMessage> messages;
  if (file.stream) messages = file.stream->take_messages();
  for (const IpcBlock& block : file.ipc.dictionaries)
    messages.push_back({.block = block, .is_dictionary = true});
  for (std::size_t b = 0; b < file.ipc.batches.size(); ++b)
    messages.push_back({.block = file.ipc.batches[b], .batch = file.batches[b]});
  // A batch needs all dictionaries before it: in a stream more may follow, or take their place.
  std::vector<TableRange> dictionaries;
  std::vector<TablePart> parts;  // With these dictionaries.
  const auto append_parts = [&] {
    for (TablePart& part : parts) {
      auto& ranges = part.record.messages;
      ranges.insert(ranges.begin(), dictionaries.begin(), dictionaries.end());
      for (const TableRange& range : dictionaries) part.unpacked_bytes += 2 * range.length_bytes;
      part.stored_bytes = plan_fetch(ranges).buffer_bytes;
      file.parts.push_back(std::move(part));
    }
    parts.clear();
  };
  for (const IpcStreamMessage& message : messages) {
    if (message.is_dictionary) {
      append_parts();
      dictionaries.push_back(
          {message.block.offset_bytes, message.block.end_bytes() - message.block.offset_bytes});
    } else {
      append_part(parts, ipc_part(message, file.head->columns));
    }
  }
  append_parts();
  file.ipc = IpcFooter{};
  file.stream.reset();
}

Result<TableDescription> TableFiles::describe(TableQuestion question) const {
  std::vector<std::string> stored;
  for (const std::string& name : context_.options.columns) {
    if (std::find(partitions_.begin(), partitions_.end(), name) != partitions_.end()) {
      question.columns = {&name, 1};
      const auto alone = describe_table(question);
      if (!alone && alone.error().code() == Code::kInvalidArgument) continue;  // Not in the file.
    }
    stored.push_back(name);
  }
  question.columns = stored;
  if (stored.empty() && !context_.options.columns.empty()) return TableDescription{};
  return describe_table(question);
}

Result<const TableFiles::Head*> TableFiles::head_of(const std::string& bytes,
                                                    std::string_view key_values,
                                                    const TableQuestion& question) {
  std::pair<std::string, std::string> key(bytes, described_key_values(key_values));
  if (const auto found = known_.find(key); found != known_.end()) return found->second.get();
  HEADRACE_TRY_ASSIGN(TableDescription table, describe(question));
  auto head = std::make_unique<Head>();
  head->head.bytes = bytes;
  head->head.spec = std::move(table.spec);
  head->head.chosen = std::move(table.leaves);
  head->columns = std::move(table.columns);
  if (kind_ == TableKind::kParquet) {
    HEADRACE_TRY_ASSIGN(head->head.leaves, parquet_leaves(bytes));
    auto& chosen = head->head.chosen;
    // Partitions alone: a block has bytes all the same, those of one column that nobody unpacks.
    if (chosen.empty() && !head->head.leaves.empty())
      chosen.push_back(narrow_leaf(head->head.leaves));
    if (!std::is_sorted(chosen.begin(), chosen.end()) ||
        (!chosen.empty() && chosen.back() >= head->head.leaves.size()))
      return Status(Code::kInternal, "the table unpacker named leaves that are none");
  }
  return known_.emplace(std::move(key), std::move(head)).first->second.get();
}

// Heads were met in the order of the network; their numbers follow the files.
Status TableFiles::number_heads() {
  std::map<const Head*, std::uint32_t> numbers;
  const Head* first = nullptr;
  std::string_view first_key;
  for (std::size_t f = 0; f < files_.size(); ++f) {
    if (files_[f].is_broken) continue;
    context_.add_whole();
    const Head* head = files_[f].head;
    if (first == nullptr) {
      first = head;
      first_key = objects_[f].key;
      columns_ = head->columns;
    }
    const auto [it, is_new] = numbers.try_emplace(head, static_cast<std::uint32_t>(heads_.size()));
    if (is_new) {
      if (!std::equal(columns_.begin(), columns_.end(), head->columns.begin(), head->columns.end(),
                      is_same)) {
        return Status(Code::kInvalidArgument,
                      fmt::format("{}/{}: {} (as in {}); open the files apart, or name the columns "
                                  "that agree with columns=",
                                  context_.store.url(), objects_[f].key,
                                  difference(columns_, head->columns), first_key));
      }
      // Metadata that make no difference make no head of their own.
      const auto same = std::find_if(heads_.begin(), heads_.end(), [&](const TableHead& h) {
        return h.bytes == head->head.bytes && h.spec == head->head.spec;
      });
      it->second = static_cast<std::uint32_t>(same - heads_.begin());
      if (same == heads_.end()) heads_.push_back(head->head);
    }
    for (TablePart& part : files_[f].parts) part.record.head = it->second;
  }
  return Status();
}

}  // namespace headrace::detail
