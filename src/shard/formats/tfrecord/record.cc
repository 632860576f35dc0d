#include "shard/formats/tfrecord/record.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "shard/formats/tfrecord/tfrecord_driver.h"

namespace headrace::detail {
namespace {

constexpr std::size_t kLengthBytes = 8;

Status bad_length() {
  return Status(Code::kCorrupt, "tfrecord: the checksum of the length does not match");
}

bool is_length_right(std::span<const std::byte> bytes) noexcept {
  return mask_crc(crc32c(bytes.first(kLengthBytes))) ==
         load_le<std::uint32_t>(bytes.data() + kLengthBytes);
}

}  // namespace

Result<std::uint64_t> parse_record_header(std::span<const std::byte> bytes) {
  if (!is_length_right(bytes)) return bad_length();
  const auto payload_bytes = load_le<std::uint64_t>(bytes.data());
  if (payload_bytes > kMostRecordBytes) return bad_length();
  return payload_bytes;
}

bool is_record_data_right(std::span<const std::byte> payload) noexcept {
  return mask_crc(crc32c(payload)) == load_le<std::uint32_t>(payload.data() + payload.size());
}

Result<std::span<const std::byte>> open_record(std::span<const std::byte> frame) {
  if (frame.size() < kRecordHeaderBytes + kRecordTrailerBytes || !is_length_right(frame))
    return bad_length();
  const auto payload_bytes = load_le<std::uint64_t>(frame.data());
  if (payload_bytes != frame.size() - kRecordHeaderBytes - kRecordTrailerBytes)
    return Status(Code::kCorrupt, "tfrecord: the length is not what the index says");
  const auto payload = frame.subspan(kRecordHeaderBytes, payload_bytes);
  if (!is_record_data_right(payload))
    return Status(Code::kCorrupt, "tfrecord: the checksum of the data does not match");
  return payload;
}

bool looks_like_tfrecord(std::span<const std::byte> head) noexcept {
  return head.size() >= kRecordHeaderBytes && is_length_right(head);
}

}  // namespace headrace::detail
