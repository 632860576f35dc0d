// Hostile bytes cannot make this read outside the span, loop longer than it is, recurse deeper
// than kMostDepth or allocate: a count is accepted only when that many bytes are left, since every
// item takes at least one.
//
// Compact protocol: numbers are varints, signed ones zigzag (0, -1, 1, -2, ...); a field's head
// has the step from the id before it in the high half, or 0 and the id follows; a list's count of
// 15 means that the count follows.
#include "shard/formats/table/thrift.h"

namespace headrace::detail {

std::uint8_t ThriftReader::byte() noexcept {
  if (failed_ || at_ >= bytes_.size()) {
    failed_ = true;
    return 0;
  }
  return static_cast<std::uint8_t>(bytes_[at_++]);
}

std::uint64_t ThriftReader::varint() noexcept {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint8_t next = byte();
    value |= static_cast<std::uint64_t>(next & 0x7f) << shift;
    if ((next & 0x80) == 0) return failed_ ? 0 : value;
  }
  failed_ = true;
  return 0;
}

std::int64_t ThriftReader::integer() noexcept {
  const std::uint64_t value = varint();
  return static_cast<std::int64_t>(value >> 1 ^ (~(value & 1) + 1));
}

bool ThriftReader::next_field(std::int32_t& last, Field& field) noexcept {
  const std::uint8_t head = byte();
  if (failed_ || (head & 0x0f) == 0) return false;
  field.type = static_cast<ThriftType>(head & 0x0f);
  const std::int64_t id = (head >> 4) != 0 ? last + (head >> 4) : integer();
  if (failed_ || id < -0x8000 || id > 0x7fff) {
    failed_ = true;
    return false;
  }
  field.id = last = static_cast<std::int32_t>(id);
  return true;
}

ThriftReader::List ThriftReader::list() noexcept {
  const std::uint8_t head = byte();
  List list{static_cast<std::uint64_t>(head >> 4), static_cast<ThriftType>(head & 0x0f)};
  if (list.count == 15) list.count = varint();
  // The smallest value is a byte.
  if (failed_ || list.count > bytes_.size() - at_) {
    failed_ = true;
    return {};
  }
  return list;
}

std::span<const std::byte> ThriftReader::binary() noexcept {
  const std::uint64_t length = varint();
  if (failed_ || length > bytes_.size() - at_) {
    failed_ = true;
    return {};
  }
  const auto value = bytes_.subspan(at_, length);
  at_ += length;
  return value;
}

std::string_view ThriftReader::text() noexcept {
  const auto value = binary();
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

void ThriftReader::skip(ThriftType type, bool in_list, int depth) noexcept {
  if (failed_ || depth > kMostDepth) {
    failed_ = true;
    return;
  }
  switch (type) {
    // The value of a bool field is its type; only in a list does it take a byte.
    case ThriftType::kTrue:
    case ThriftType::kFalse:
      if (in_list) byte();
      return;
    case ThriftType::kByte:
      byte();
      return;
    case ThriftType::kI16:
    case ThriftType::kI32:
    case ThriftType::kI64:
      varint();
      return;
    case ThriftType::kDouble:
    case ThriftType::kUuid: {
      const std::size_t width = type == ThriftType::kDouble ? 8 : 16;
      if (width > bytes_.size() - at_) {
        failed_ = true;
        return;
      }
      at_ += width;
      return;
    }
    case ThriftType::kBinary:
      binary();
      return;
    case ThriftType::kList:
    case ThriftType::kSet: {
      const List items = list();
      for (std::uint64_t i = 0; i < items.count && !failed_; ++i) skip(items.type, true, depth + 1);
      return;
    }
    case ThriftType::kMap: {
      const std::uint64_t count = varint();
      if (failed_ || count == 0) return;
      if (count > bytes_.size() - at_) {
        failed_ = true;
        return;
      }
      const std::uint8_t types = byte();
      for (std::uint64_t i = 0; i < count && !failed_; ++i) {
        skip(static_cast<ThriftType>(types >> 4), true, depth + 1);
        skip(static_cast<ThriftType>(types & 0x0f), true, depth + 1);
      }
      return;
    }
    case ThriftType::kStruct: {
      std::int32_t last = 0;
      Field field;
      while (next_field(last, field)) skip(field.type, false, depth + 1);
      return;
    }
    case ThriftType::kStop:
      break;
  }
  failed_ = true;
}

std::span<const std::byte> ThriftReader::take(ThriftType type) noexcept {
  const std::size_t begin = at_;
  skip(type);
  return failed_ ? std::span<const std::byte>() : bytes_.subspan(begin, at_ - begin);
}

void ThriftWriter::varint(std::uint64_t value) {
  while (value >= 0x80) {
    out_.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out_.push_back(static_cast<char>(value));
}

void ThriftWriter::integer(std::int64_t value) {
  varint(static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
}

void ThriftWriter::field(std::int32_t id, ThriftType type) {
  const std::int32_t step = id - ids_.back();
  ids_.back() = id;
  const auto low = static_cast<unsigned>(type);
  if (step >= 1 && step <= 15) {
    out_.push_back(static_cast<char>(static_cast<unsigned>(step) << 4 | low));
    return;
  }
  out_.push_back(static_cast<char>(low));
  integer(id);
}

void ThriftWriter::i32_field(std::int32_t id, std::int64_t value) {
  field(id, ThriftType::kI32);
  integer(value);
}

void ThriftWriter::i64_field(std::int32_t id, std::int64_t value) {
  field(id, ThriftType::kI64);
  integer(value);
}

void ThriftWriter::list(std::uint64_t count, ThriftType type) {
  const auto low = static_cast<unsigned>(type);
  if (count < 15) {
    out_.push_back(static_cast<char>(static_cast<unsigned>(count) << 4 | low));
    return;
  }
  out_.push_back(static_cast<char>(0xf0U | low));
  varint(count);
}

void ThriftWriter::raw(std::span<const std::byte> bytes) {
  out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace headrace::detail
