#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/endian.h"
#include "shard/table/ipc_table.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kIpcMagic = "ARROW1";
constexpr std::uint64_t kBlockBytes = 24;     // struct Block of File.fbs.
constexpr std::uint16_t kV5 = 4;              // MetadataVersion.V5
constexpr std::uint8_t kDictionaryBatch = 2;  // MessageHeader.DictionaryBatch
constexpr std::uint8_t kRecordBatch = 3;      // MessageHeader.RecordBatch
constexpr std::uint64_t kBufferBytes = 16;  // struct Buffer of Message.fbs: i64 offset, i64 length.
constexpr std::int64_t kMostRows = 0xffff'ffffLL;
constexpr std::int64_t kMostInflatedBytes = std::int64_t{1} << 48;

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("Arrow file: {}", what));
}

// One table of a flatbuffer. Every read is checked against the buffer; what does not fit is absent.
// Source: https://flatbuffers.dev/internals/.
class FlatTable {
 public:
  static std::optional<FlatTable> root(std::span<const std::byte> buffer) {
    if (buffer.size() < 4) return std::nullopt;
    return at(buffer, load_le<std::uint32_t>(buffer.data()));
  }

  template <class T>
  T scalar(std::uint32_t field, T absent) const {
    const std::uint64_t where = position(field);
    if (where == 0 || !has(where, sizeof(T))) return absent;
    return load_le<T>(buffer_.data() + where);
  }

  std::optional<FlatTable> table(std::uint32_t field) const {
    const std::uint64_t where = position(field);
    if (where == 0 || !has(where, 4)) return std::nullopt;
    return at(buffer_, where + load_le<std::uint32_t>(buffer_.data() + where));
  }

  // Items of a vector of structs of `item_bytes`; nothing when it does not lie in the buffer.
  std::optional<std::span<const std::byte>> structs(std::uint32_t field,
                                                    std::uint64_t item_bytes) const {
    const std::uint64_t where = position(field);
    if (where == 0) return std::span<const std::byte>();
    if (!has(where, 4)) return std::nullopt;
    const std::uint64_t vector = where + load_le<std::uint32_t>(buffer_.data() + where);
    if (!has(vector, 4)) return std::nullopt;
    const std::uint64_t bytes = load_le<std::uint32_t>(buffer_.data() + vector) * item_bytes;
    if (!has(vector + 4, bytes)) return std::nullopt;
    return buffer_.subspan(vector + 4, bytes);
  }

 private:
  FlatTable(std::span<const std::byte> buffer, std::uint64_t table, std::uint64_t vtable,
            std::uint16_t vtable_bytes)
      : buffer_(buffer), table_(table), vtable_(vtable), vtable_bytes_(vtable_bytes) {}

  static std::optional<FlatTable> at(std::span<const std::byte> buffer, std::uint64_t table) {
    if (table > buffer.size() || buffer.size() - table < 4) return std::nullopt;
    const std::int64_t vtable =
        static_cast<std::int64_t>(table) - load_le<std::int32_t>(buffer.data() + table);
    if (vtable < 0 || static_cast<std::uint64_t>(vtable) + 4 > buffer.size()) return std::nullopt;
    const auto where = static_cast<std::uint64_t>(vtable);
    const auto bytes = load_le<std::uint16_t>(buffer.data() + where);
    if (bytes < 4 || bytes > buffer.size() - where) return std::nullopt;
    return FlatTable(buffer, table, where, bytes);
  }

  bool has(std::uint64_t where, std::uint64_t bytes) const {
    return where <= buffer_.size() && bytes <= buffer_.size() - where;
  }

  // 0: the field is absent.
  std::uint64_t position(std::uint32_t field) const {
    const std::uint64_t slot = 4 + 2 * std::uint64_t{field};
    if (slot + 2 > vtable_bytes_) return 0;
    const auto offset = load_le<std::uint16_t>(buffer_.data() + vtable_ + slot);
    return offset == 0 ? 0 : table_ + offset;
  }

  std::span<const std::byte> buffer_;
  std::uint64_t table_ = 0;
  std::uint64_t vtable_ = 0;
  std::uint16_t vtable_bytes_ = 0;
};

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

// u32 continuation (0xffffffff), i32 length, then the flatbuffer Message.
struct MessageText {
  FlatTable message;
  std::uint64_t prefix_bytes = 0;
};

Result<MessageText> parse_message(std::span<const std::byte> bytes) {
  if (bytes.size() < 8 || load_le<std::uint32_t>(bytes.data()) != 0xffff'ffffU)
    return corrupt("not a message");
  const auto length = load_le<std::int32_t>(bytes.data() + 4);
  if (length < 4 || static_cast<std::uint64_t>(length) > bytes.size() - 8)
    return corrupt("a message that is cut off");
  const auto message = FlatTable::root(bytes.subspan(8, static_cast<std::size_t>(length)));
  if (!message) return corrupt("a broken message");
  return MessageText{*message, 8 + static_cast<std::uint64_t>(length)};
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
  if (root->scalar<std::uint16_t>(0, 0) < kV5)
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
  HEADRACE_TRY_ASSIGN(const MessageText text, parse_message(metadata));
  if (text.message.scalar<std::uint8_t>(1, 0) != kRecordBatch)
    return corrupt("a block that is not a record batch");
  const auto batch = text.message.table(2);
  if (!batch) return corrupt("a broken record batch");
  const auto rows = batch->scalar<std::int64_t>(0, 0);
  if (rows < 0 || rows > kMostRows) return corrupt("a record batch of an impossible length");
  return IpcBatch{static_cast<std::uint64_t>(rows), batch->table(3).has_value()};
}

Result<IpcMessage> next_ipc_message(std::span<const std::byte>& stream) {
  HEADRACE_TRY_ASSIGN(const MessageText text, parse_message(stream));
  const auto body_bytes = text.message.scalar<std::int64_t>(3, 0);
  const std::uint64_t left = stream.size() - text.prefix_bytes;
  if (body_bytes < 0 || static_cast<std::uint64_t>(body_bytes) > left)
    return corrupt("a body that is cut off");
  const auto kind = text.message.scalar<std::uint8_t>(1, 0);
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
