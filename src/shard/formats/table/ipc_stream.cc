#include "shard/formats/table/ipc_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "shard/formats/table/ipc_message.h"

namespace headrace::detail {
namespace {

// Metadata of a message holds a few numbers a column; this bounds what a hostile file makes us
// read.
constexpr std::int32_t kMostMetadataBytes = 256 << 20;

Status corrupt(std::uint64_t offset, std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("Arrow stream: byte {}: {}", offset, what));
}

}  // namespace

Result<IpcMessageText> parse_ipc_message(std::span<const std::byte> bytes) {
  const auto corrupt_message = [](std::string_view what) {
    return Status(Code::kCorrupt, fmt::format("Arrow: {}", what));
  };
  if (bytes.size() < kMessagePrefixBytes || load_le<std::uint32_t>(bytes.data()) != kContinuation)
    return corrupt_message("not a message");
  const auto length = load_le<std::int32_t>(bytes.data() + 4);
  if (length < 4 || static_cast<std::uint64_t>(length) > bytes.size() - kMessagePrefixBytes)
    return corrupt_message("a message that is cut off");
  const auto message =
      FlatTable::root(bytes.subspan(kMessagePrefixBytes, static_cast<std::size_t>(length)));
  if (!message) return corrupt_message("a broken message");
  return IpcMessageText{*message, kMessagePrefixBytes + static_cast<std::uint64_t>(length)};
}

bool looks_like_ipc_stream(std::span<const std::byte> head) noexcept {
  if (head.size() < kMessagePrefixBytes || load_le<std::uint32_t>(head.data()) != kContinuation)
    return false;
  const auto length = load_le<std::int32_t>(head.data() + 4);
  if (length < 8 || length % 8 != 0 || length > kMostMetadataBytes) return false;
  const auto message = FlatTable::root(head.subspan(kMessagePrefixBytes));
  return message && message->scalar<std::uint16_t>(0, 0) <= kMetadataV5 &&
         message->scalar<std::uint8_t>(1, 0) == kSchemaMessage;
}

Status IpcStreamScan::feed(std::span<const std::byte> bytes) {
  while (!is_done_) {
    if (bytes.size() < kMessagePrefixBytes) break;
    if (load_le<std::uint32_t>(bytes.data()) != kContinuation)
      return corrupt(offset_, "no message begins here");
    const auto length = load_le<std::int32_t>(bytes.data() + 4);
    if (length == 0) return end_stream();
    const std::uint64_t left = file_bytes_ - offset_ - kMessagePrefixBytes;
    if (length < 8 || length > kMostMetadataBytes || static_cast<std::uint64_t>(length) > left)
      return corrupt(offset_, "a message that is cut off");
    needed_ = kMessagePrefixBytes + static_cast<std::uint64_t>(length);
    if (bytes.size() < needed_) return Status();
    const std::uint64_t before = offset_;
    HEADRACE_TRY(take_message(bytes.first(needed_)));
    needed_ = kMessagePrefixBytes;
    bytes = bytes.subspan(std::min<std::uint64_t>(offset_ - before, bytes.size()));
  }
  if (file_bytes_ - offset_ >= kMessagePrefixBytes) return Status();
  return corrupt(offset_,
                 "the file ends without the end mark of the stream (cut off, or still being "
                 "written?); write it anew, its writer closed");
}

Status IpcStreamScan::take_message(std::span<const std::byte> bytes) {
  auto text = parse_ipc_message(bytes);
  if (!text) return corrupt(offset_, text.error().message());
  if (text->message.scalar<std::uint16_t>(0, 0) < kMetadataV5)
    return Status(Code::kUnsupported, "Arrow stream: metadata older than V5 (Arrow before 1.0)");
  const std::int64_t body = text->body_bytes();
  const std::uint64_t left = file_bytes_ - offset_ - bytes.size();
  if (body < 0 || static_cast<std::uint64_t>(body) > left)
    return corrupt(offset_, "a body that is cut off");
  IpcStreamMessage message{{offset_, bytes.size(), static_cast<std::uint64_t>(body)}};
  if (schema_.empty() != (text->kind() == kSchemaMessage))
    return corrupt(offset_, schema_.empty() ? "no schema comes first" : "a second schema");
  if (schema_.empty()) {
    schema_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } else if (text->kind() == kDictionaryBatch || text->kind() == kRecordBatch) {
    message.is_dictionary = text->kind() == kDictionaryBatch;
    if (!message.is_dictionary) {
      HEADRACE_TRY_ASSIGN(message.batch, parse_ipc_batch(bytes));
    }
    messages_.push_back(message);
  } else {
    return Status(Code::kUnsupported, "Arrow stream: holds messages that are no rows");
  }
  offset_ = message.block.end_bytes();
  return Status();
}

Status IpcStreamScan::end_stream() {
  if (schema_.empty()) return corrupt(offset_, "no schema");
  if (file_bytes_ - offset_ > kMessagePrefixBytes)
    return corrupt(offset_, "something follows the end mark of the stream");
  is_done_ = true;
  return Status();
}

}  // namespace headrace::detail
