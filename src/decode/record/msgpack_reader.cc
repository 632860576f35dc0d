#include <simdjson.h>

#include <array>
#include <bit>
#include <string>

#include "headrace/msgpack.h"

namespace headrace {
namespace {

using Type = MsgpackToken::Type;

constexpr int kTimestampType = -1;
constexpr std::uint32_t kMostNanoseconds = 999'999'999;

Status corrupt(const char* what) { return Status(Code::kCorrupt, what); }

MsgpackToken uint_token(std::uint64_t value) {
  MsgpackToken token{.type = Type::kUint};
  token.uint_value = value;
  return token;
}

MsgpackToken int_token(std::int64_t value) {
  if (value >= 0) return uint_token(static_cast<std::uint64_t>(value));
  MsgpackToken token{.type = Type::kInt};
  token.int_value = value;
  return token;
}

MsgpackToken float_token(double value) {
  MsgpackToken token{.type = Type::kFloat};
  token.float_value = value;
  return token;
}

std::uint64_t big_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | std::to_integer<std::uint64_t>(byte);
  return value;
}

/// 4 bytes: seconds; 8: 30 bits of nanoseconds, 34 of seconds; 12: nanoseconds, signed seconds.
Result<MsgpackToken> timestamp(std::span<const std::byte> data) {
  MsgpackToken token{.type = Type::kTimestamp};
  if (data.size() == 4) {
    token.int_value = static_cast<std::int64_t>(big_endian(data));
  } else if (data.size() == 8) {
    const std::uint64_t both = big_endian(data);
    token.nanoseconds = static_cast<std::uint32_t>(both >> 34);
    token.int_value = static_cast<std::int64_t>(both & ((std::uint64_t{1} << 34) - 1));
  } else if (data.size() == 12) {
    token.nanoseconds = static_cast<std::uint32_t>(big_endian(data.first(4)));
    token.int_value = static_cast<std::int64_t>(big_endian(data.subspan(4)));
  } else {
    return corrupt("a timestamp that has neither 4, 8 nor 12 bytes");
  }
  if (token.nanoseconds > kMostNanoseconds)
    return corrupt("a timestamp of more than 999999999 nanoseconds");
  return token;
}

/// What is open while values are checked: values to come of each array and map around them.
class Nesting {
 public:
  /// Takes a token. Errors: kCorrupt.
  Status add(const MsgpackToken& token) {
    if (is_key() && token.type >= Type::kArray)
      return corrupt("a map has a key that is neither text, bytes nor a number");
    if (depth_ > 0) --levels_[depth_ - 1].left;
    const bool is_map = token.type == Type::kMap;
    if (token.type == Type::kArray || is_map) {
      if (depth_ == levels_.size())
        return corrupt("more than 512 arrays and maps within each other");
      levels_[depth_++] = {.left = token.count * (is_map ? std::uint64_t{2} : 1), .is_map = is_map};
    }
    while (depth_ > 0 && levels_[depth_ - 1].left == 0) --depth_;
    return {};
  }
  bool is_open() const noexcept { return depth_ > 0; }

 private:
  struct Level {
    std::uint64_t left;
    bool is_map;
  };
  bool is_key() const noexcept {
    return depth_ > 0 && levels_[depth_ - 1].is_map && levels_[depth_ - 1].left % 2 == 0;
  }

  std::array<Level, kMostMsgpackDepth> levels_;
  std::size_t depth_ = 0;
};

}  // namespace

Result<std::span<const std::byte>> MsgpackReader::take(std::uint64_t count) {
  if (count > left_.size()) return corrupt("it ends inside of a value");
  const std::span<const std::byte> bytes = left_.first(count);
  left_ = left_.subspan(count);
  return bytes;
}

Result<std::uint64_t> MsgpackReader::take_number(std::size_t count_bytes) {
  HEADRACE_TRY_ASSIGN(const auto bytes, take(count_bytes));
  return big_endian(bytes);
}

Result<MsgpackToken> MsgpackReader::take_bytes(Type type, std::size_t length_bytes) {
  HEADRACE_TRY_ASSIGN(const std::uint64_t length, take_number(length_bytes));
  MsgpackToken token{.type = type};
  HEADRACE_TRY_ASSIGN(token.bytes, take(length));
  return token;
}

Result<MsgpackToken> MsgpackReader::take_count(Type type, std::size_t length_bytes) {
  MsgpackToken token{.type = type};
  HEADRACE_TRY_ASSIGN(const std::uint64_t count, take_number(length_bytes));
  token.count = static_cast<std::uint32_t>(count);
  return token;
}

Result<MsgpackToken> MsgpackReader::take_extension(std::uint64_t length) {
  HEADRACE_TRY_ASSIGN(const std::uint64_t code, take_number(1));
  HEADRACE_TRY_ASSIGN(const auto data, take(length));
  const int type = static_cast<std::int8_t>(code);
  if (type == kTimestampType) return timestamp(data);
  return Status(Code::kUnsupported, "msgpack extension type " + std::to_string(type) +
                                        " of an application: read the column as bytes, and "
                                        "unpack it with the application's ext_hook");
}

Result<MsgpackToken> MsgpackReader::take_scalar(unsigned head) {
  const auto signed_number = [this](std::size_t size) -> Result<MsgpackToken> {
    HEADRACE_TRY_ASSIGN(const std::uint64_t bits, take_number(size));
    const std::size_t unused = 64 - 8 * size;
    return int_token(static_cast<std::int64_t>(bits << unused) >> unused);
  };
  const auto unsigned_number = [this](std::size_t size) -> Result<MsgpackToken> {
    HEADRACE_TRY_ASSIGN(const std::uint64_t bits, take_number(size));
    return uint_token(bits);
  };
  if (head >= 0xcc && head <= 0xcf) return unsigned_number(std::size_t{1} << (head - 0xcc));
  if (head >= 0xd0 && head <= 0xd3) return signed_number(std::size_t{1} << (head - 0xd0));
  if (head == 0xca) {
    HEADRACE_TRY_ASSIGN(const std::uint64_t bits, take_number(4));
    return float_token(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  if (head == 0xcb) {
    HEADRACE_TRY_ASSIGN(const std::uint64_t bits, take_number(8));
    return float_token(std::bit_cast<double>(bits));
  }
  MsgpackToken token;
  if (head == 0xc1) return corrupt("it has the byte 0xc1, which begins nothing in msgpack");
  if (head != 0xc0) token = {.type = Type::kBool, .is_true = head == 0xc3};
  return token;
}

Result<MsgpackToken> MsgpackReader::next() {
  HEADRACE_TRY_ASSIGN(const std::uint64_t first, take_number(1));
  const auto head = static_cast<unsigned>(first);
  MsgpackToken token;
  if (head < 0x80) return uint_token(head);
  if (head >= 0xe0) return int_token(static_cast<std::int8_t>(head));
  if (head < 0xa0) {
    token = {.type = head < 0x90 ? Type::kMap : Type::kArray};
    token.count = head & 0xf;
    return token;
  }
  if (head < 0xc0) {
    token = {.type = Type::kString};
    HEADRACE_TRY_ASSIGN(token.bytes, take(head & 0x1f));
    return token;
  }
  if (head >= 0xc4 && head <= 0xc6)
    return take_bytes(Type::kBinary, std::size_t{1} << (head - 0xc4));
  if (head >= 0xd9 && head <= 0xdb)
    return take_bytes(Type::kString, std::size_t{1} << (head - 0xd9));
  if (head == 0xdc || head == 0xdd) return take_count(Type::kArray, head == 0xdc ? 2 : 4);
  if (head == 0xde || head == 0xdf) return take_count(Type::kMap, head == 0xde ? 2 : 4);
  if (head >= 0xd4 && head <= 0xd8) return take_extension(std::uint64_t{1} << (head - 0xd4));
  if (head >= 0xc7 && head <= 0xc9) {
    HEADRACE_TRY_ASSIGN(const std::uint64_t length, take_number(std::size_t{1} << (head - 0xc7)));
    return take_extension(length);
  }
  return take_scalar(head);
}

Status check_msgpack(std::span<const std::byte> bytes) {
  MsgpackReader reader(bytes);
  Nesting nesting;
  do {
    HEADRACE_TRY_ASSIGN(const MsgpackToken token, reader.next());
    const bool is_text = token.type == Type::kString;
    if (is_text && !simdjson::validate_utf8(reinterpret_cast<const char*>(token.bytes.data()),
                                            token.bytes.size()))
      return corrupt("text that is not UTF-8");
    HEADRACE_TRY(nesting.add(token));
  } while (nesting.is_open());
  return reader.is_done() ? Status() : corrupt("bytes are left behind the value");
}

}  // namespace headrace
