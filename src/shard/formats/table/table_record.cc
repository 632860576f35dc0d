// A record a block, and there may be hundreds of thousands: varints, in a fixed order, 10 to 20
// bytes a chunk. There is no version in it; a change of the coding needs another version of the
// index.
//
// Reading goes on after the first byte that does not fit, with zeros, and is refused at the end;
// counts are bounded by the bytes that are left, so it ends soon.
#include "shard/formats/table/table_record.h"

#include <algorithm>
#include <numeric>

namespace headrace::detail {
namespace {

void put(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  std::uint64_t next() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ >= text_.size()) break;
      const auto byte = static_cast<std::uint8_t>(text_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    failed_ = true;
    return 0;
  }
  // A number of items, each of at least a byte.
  std::uint64_t count() {
    const std::uint64_t value = next();
    if (value > text_.size() - at_) failed_ = true;
    return failed_ ? 0 : value;
  }
  bool failed() const { return failed_; }
  bool at_end() const { return at_ == text_.size(); }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

ParquetChunk read_chunk(Reader& reader) {
  ParquetChunk chunk;
  chunk.begin_bytes = reader.next();
  chunk.length_bytes = reader.next();
  chunk.uncompressed_bytes = reader.next();
  chunk.value_count = reader.next();
  chunk.dictionary_bytes = reader.next();
  chunk.codec = static_cast<std::uint8_t>(reader.next());
  const std::uint64_t encodings = reader.count();
  for (std::uint64_t i = 0; i < encodings && !reader.failed(); ++i)
    chunk.encodings.push_back(static_cast<std::uint8_t>(reader.next()));
  return chunk;
}

// Keeps sums of an offset and a length inside 64 bits.
constexpr std::uint64_t kMostOffset = std::uint64_t{1} << 62;

bool is_sane(std::uint64_t offset, std::uint64_t length) {
  return offset <= kMostOffset && length <= kMostOffset;
}

}  // namespace

std::string write_table_record(const TableRecord& record) {
  std::string out;
  put(out, record.head);
  put(out, record.first_row);
  put(out, record.row_groups.size());
  for (const ParquetRowGroup& group : record.row_groups) {
    put(out, group.row_count);
    put(out, group.chunks.size());
    for (const ParquetChunk& chunk : group.chunks) {
      put(out, chunk.begin_bytes);
      put(out, chunk.length_bytes);
      put(out, chunk.uncompressed_bytes);
      put(out, chunk.value_count);
      put(out, chunk.dictionary_bytes);
      put(out, chunk.codec);
      put(out, chunk.encodings.size());
      for (const std::uint8_t encoding : chunk.encodings) put(out, encoding);
    }
  }
  put(out, record.messages.size());
  for (const TableRange& range : record.messages) {
    put(out, range.offset_bytes);
    put(out, range.length_bytes);
  }
  return out;
}

Result<TableRecord> parse_table_record(std::string_view text) {
  Reader reader(text);
  TableRecord record;
  record.head = static_cast<std::uint32_t>(reader.next());
  record.first_row = reader.next();
  bool sane = true;
  const std::uint64_t groups = reader.count();
  for (std::uint64_t g = 0; g < groups && !reader.failed(); ++g) {
    ParquetRowGroup& group = record.row_groups.emplace_back();
    group.row_count = reader.next();
    const std::uint64_t chunks = reader.count();
    for (std::uint64_t c = 0; c < chunks && !reader.failed(); ++c) {
      const ParquetChunk& chunk = group.chunks.emplace_back(read_chunk(reader));
      sane = sane && is_sane(chunk.begin_bytes, chunk.length_bytes) &&
             chunk.dictionary_bytes <= chunk.length_bytes;
    }
  }
  const std::uint64_t messages = reader.count();
  for (std::uint64_t i = 0; i < messages && !reader.failed(); ++i) {
    TableRange& range = record.messages.emplace_back();
    range.offset_bytes = reader.next();
    range.length_bytes = reader.next();
    sane = sane && is_sane(range.offset_bytes, range.length_bytes);
  }
  if (reader.failed() || !reader.at_end() || !sane)
    return Status(Code::kCorrupt, "dataset index: a damaged record of a table's block");
  return record;
}

std::vector<TableRange> ranges_of(const TableRecord& record) {
  std::vector<TableRange> ranges = record.messages;
  for (const ParquetRowGroup& group : record.row_groups) {
    for (const ParquetChunk& chunk : group.chunks)
      ranges.push_back({chunk.begin_bytes, chunk.length_bytes});
  }
  return ranges;
}

FetchPlan plan_fetch(std::span<const TableRange> wanted) {
  FetchPlan plan;
  plan.targets.resize(wanted.size());
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return wanted[a].offset_bytes < wanted[b].offset_bytes;
  });
  for (const std::size_t i : order) {
    const TableRange& range = wanted[i];
    if (range.length_bytes == 0) continue;
    const std::uint64_t end = range.offset_bytes + range.length_bytes;
    TableRead* last = plan.reads.empty() ? nullptr : &plan.reads.back();
    if (last == nullptr ||
        range.offset_bytes > last->offset_bytes + last->length_bytes + kMostGapBytes) {
      const std::uint64_t lead = last == nullptr ? std::min(range.offset_bytes, kLeadBytes) : 0;
      plan.reads.push_back(
          {range.offset_bytes - lead, range.length_bytes + lead, plan.buffer_bytes});
      last = &plan.reads.back();
    } else {
      last->length_bytes = std::max(last->length_bytes, end - last->offset_bytes);
    }
    plan.targets[i] = last->target_bytes + (range.offset_bytes - last->offset_bytes);
    plan.buffer_bytes = last->target_bytes + last->length_bytes;
  }
  return plan;
}

}  // namespace headrace::detail
