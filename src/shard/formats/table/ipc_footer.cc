// Names of flatbuffer fields are not in the file: the numbers below are their positions in
// File.fbs and Message.fbs of apache/arrow (format/). Offsets and lengths are signed there, and
// each is checked for its sign and against what is left, in an order in which no difference can be
// negative.
//
// Everything before the first block is taken for the schema (schema_end_bytes), because writers
// put its message there.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/endian.h"
#include "shard/formats/table/ipc_message.h"
#include "shard/formats/table/ipc_table.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kIpcMagic = "ARROW1";
constexpr std::uint64_t kBlockBytes = 24;   // struct Block of File.fbs.
constexpr std::uint64_t kBufferBytes = 16;  // struct Buffer of Message.fbs: i64 offset, i64 length.
constexpr std::int64_t kMostRows = 0xffff'ffffLL;
constexpr std::int64_t kMostInflatedBytes = std::int64_t{1} << 48;

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("Arrow file: {}", what));
}

Status parse_blocks(const FlatTable& footer, std::uint32_t field, std::uint64_t data_end,
                    std::vector<IpcBlock>& out) {
  const auto records = footer.structs(field, kBlockBytes);
  if (!records) return corrupt("a broken list of blocks");
  for (std::size_t at = 0; at < records->size(); at += kBlockBytes) {
    const auto offset = load_le<std::int64_t>(records->data() + at);
    const auto metadata = load_le<std::int32_t>(records->data() + at + 8);
    const auto body = load_le<std::int64_t>(records->data() + at + 16);
    const auto end = static_cast<std::int64_t>(data_end);
    if (offset < static_cast<std::int64_t>(kIpcHeadBytes) || metadata < 8 || body < 0 ||
        offset > end || metadata > end - offset || body > end - offset - metadata) {
      return corrupt("a block outside the file");
    }
    out.push_back({static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(metadata),
                   static_cast<std::uint64_t>(body)});
  }
  return Status();
}

// Adds the inflated bytes of a batch's buffers. A compressed buffer begins with them, an i64; -1:
// it is stored as it is.
Status add_inflated(const FlatTable& batch, std::span<const std::byte> body, std::int64_t& sum) {
  if (!batch.table(3)) return Status();
  const auto buffers = batch.structs(2, kBufferBytes);
  if (!buffers) return corrupt("a broken list of buffers");
  for (std::size_t at = 0; at < buffers->size(); at += kBufferBytes) {
    const auto offset = load_le<std::uint64_t>(buffers->data() + at);
    const auto length = load_le<std::uint64_t>(buffers->data() + at + 8);
    if (length == 0) continue;
    if (offset > body.size() || length > body.size() - offset || length < 8)
      return corrupt("a buffer outside of its body");
    const auto prefix = load_le<std::int64_t>(body.data() + offset);
    const std::int64_t inflated = prefix == -1 ? static_cast<std::int64_t>(length - 8) : prefix;
    if (inflated < 0 || inflated > kMostInflatedBytes - sum)
      return corrupt("a buffer of an impossible length");
    sum += inflated;
  }
  return Status();
}

}  // namespace

Result<std::uint64_t> ipc_footer_bytes(std::span<const std::byte> tail, std::uint64_t file_bytes) {
  if (tail.size() < kIpcTailBytes || file_bytes < kIpcHeadBytes + kIpcTailBytes)
    return corrupt("too short");
  tail = tail.last(kIpcTailBytes);
  if (std::string_view(reinterpret_cast<const char*>(tail.data()) + 4, 6) != kIpcMagic)
    return corrupt("does not end with ARROW1 (truncated?)");
  const auto length = load_le<std::int32_t>(tail.data());
  if (length <= 0 ||
      static_cast<std::uint64_t>(length) > file_bytes - kIpcHeadBytes - kIpcTailBytes) {
    return corrupt(fmt::format("a footer of {} bytes in a file of {}", length, file_bytes));
  }
  return static_cast<std::uint64_t>(length) + kIpcTailBytes;
}

Result<IpcFooter> parse_ipc_footer(std::span<const std::byte> footer, std::uint64_t file_bytes) {
  HEADRACE_TRY_ASSIGN(const std::uint64_t footer_bytes, ipc_footer_bytes(footer, file_bytes));
  if (footer.size() != footer_bytes) return corrupt("a footer that is cut off");
  const auto root = FlatTable::root(footer.first(footer_bytes - kIpcTailBytes));
  if (!root) return corrupt("a broken footer");
  if (root->scalar<std::uint16_t>(0, 0) < kMetadataV5)
    return Status(Code::kUnsupported, "Arrow file: metadata older than V5 (Arrow before 1.0)");
  const std::uint64_t data_end = file_bytes - footer_bytes;
  IpcFooter out;
  HEADRACE_TRY(parse_blocks(*root, 2, data_end, out.dictionaries));
  HEADRACE_TRY(parse_blocks(*root, 3, data_end, out.batches));
  out.schema_end_bytes = data_end;
  for (const auto* blocks : {&out.dictionaries, &out.batches}) {
    for (const IpcBlock& block : *blocks)
      out.schema_end_bytes = std::min(out.schema_end_bytes, block.offset_bytes);
  }
  if (out.schema_end_bytes <= kIpcHeadBytes) return corrupt("no schema");
  return out;
}

Result<IpcBatch> parse_ipc_batch(std::span<const std::byte> metadata) {
  HEADRACE_TRY_ASSIGN(const IpcMessageText text, parse_ipc_message(metadata));
  if (text.kind() != kRecordBatch) return corrupt("a block that is not a record batch");
  const auto batch = text.message.table(2);
  if (!batch) return corrupt("a broken record batch");
  const auto rows = batch->scalar<std::int64_t>(0, 0);
  if (rows < 0 || rows > kMostRows) return corrupt("a record batch of an impossible length");
  return IpcBatch{static_cast<std::uint64_t>(rows), batch->table(3).has_value()};
}

Result<IpcMessage> next_ipc_message(std::span<const std::byte>& stream) {
  HEADRACE_TRY_ASSIGN(const IpcMessageText text, parse_ipc_message(stream));
  const std::int64_t body_bytes = text.body_bytes();
  const std::uint64_t left = stream.size() - text.prefix_bytes;
  if (body_bytes < 0 || static_cast<std::uint64_t>(body_bytes) > left)
    return corrupt("a body that is cut off");
  const std::uint8_t kind = text.kind();
  auto batch = text.message.table(2);
  if (batch && kind == kDictionaryBatch) batch = batch->table(1);
  if (!batch || (kind != kDictionaryBatch && kind != kRecordBatch))
    return corrupt("a message that is no batch");
  const auto size = static_cast<std::size_t>(body_bytes);
  std::int64_t sum = 0;
  HEADRACE_TRY(add_inflated(*batch, stream.subspan(text.prefix_bytes, size), sum));
  const IpcMessage message{stream.first(text.prefix_bytes + size), kind == kDictionaryBatch,
                           static_cast<std::uint64_t>(sum)};
  stream = stream.subspan(message.bytes.size());
  return message;
}

}  // namespace headrace::detail
