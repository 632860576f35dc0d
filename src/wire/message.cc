// The bytes come from a store and may be anything: every read is compared with the end, a varint
// of more than ten bytes is refused, and unknown groups are passed over with an array as stack, so
// that no nesting makes the stack of calls grow.
//
// Lists of integers are most of the bytes of many datasets, so they are counted 64 bytes at a
// time. A value ends at a byte without its highest bit; these bits of 64 bytes make one word, and
// the number of values is that of its zero bits. Ten bits in a row mean a varint that is too long,
// also across two words: `open` carries what the last one ended with. write_varints() may trust
// all this, because nobody calls it for bytes that count_varints() refused.
#include "wire/message.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/endian.h"

namespace headrace::detail {
namespace {

constexpr unsigned kMostVarintBytes = 10;
// Depth of unknown groups; protobuf's own limit.
constexpr std::size_t kMostGroups = 100;

// The highest bits of 8 bytes, the first byte's lowest: the multiplication moves bit 8 i + 7 to
// bit 56 + i, and no two of them meet below.
std::uint64_t high_bits(const std::byte* bytes) noexcept {
  const std::uint64_t word = load_le<std::uint64_t>(bytes) & 0x8080808080808080U;
  return (word >> 7) * 0x0102040810204080U >> 56;
}

// True when ten neighbouring bits are set.
bool has_run_of_ten(std::uint64_t bits) noexcept {
  bits &= bits >> 1;
  bits &= bits >> 2;
  bits &= bits >> 4;
  return (bits & bits >> 2) != 0;
}

}  // namespace

bool WireReader::read_long_varint(std::uint64_t& value) noexcept {
  value = 0;
  for (unsigned i = 0; i < kMostVarintBytes; ++i) {
    if (at_ == end_) return false;
    const std::uint64_t byte = *at_++;
    value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) return true;
  }
  return false;
}

bool WireReader::skip(std::uint32_t field, std::uint32_t type) noexcept {
  std::span<const std::byte> bytes;
  std::uint64_t value = 0;
  switch (type) {
    case kVarint:
      return read_varint(value);
    case kFixed64:
      return read_fixed(8, bytes);
    case kDelimited:
      return read_bytes(bytes);
    case kGroupBegin:
      return skip_group(field);
    case kFixed32:
      return read_fixed(4, bytes);
    default:
      return false;  // A group's end without its begin, or no type at all.
  }
}

bool WireReader::skip_group(std::uint32_t field) noexcept {
  std::array<std::uint32_t, kMostGroups> open;
  std::size_t depth = 0;
  open[depth++] = field;
  while (depth > 0) {
    std::uint32_t inner = 0;
    std::uint32_t type = 0;
    if (!read_tag(inner, type)) return false;
    if (type == kGroupEnd) {
      if (open[--depth] != inner) return false;
    } else if (type == kGroupBegin) {
      if (depth == kMostGroups) return false;
      open[depth++] = inner;
    } else if (!skip(inner, type)) {
      return false;
    }
  }
  return true;
}

std::int64_t count_varints(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return 0;
  // The last value has no end.
  if ((bytes.back() & std::byte{0x80}) != std::byte{0}) return -1;
  std::int64_t count = 0;
  unsigned open = 0;  // Bytes so far of the varint that goes on.
  std::size_t at = 0;
  for (; at + 64 <= bytes.size(); at += 64) {
    std::uint64_t more = 0;  // Bit i: byte i is followed by another of its varint.
    for (unsigned i = 0; i < 8; ++i) more |= high_bits(bytes.data() + at + 8 * i) << (8 * i);
    if (open + static_cast<unsigned>(std::countr_one(more)) >= kMostVarintBytes ||
        has_run_of_ten(more)) {
      return -1;
    }
    count += 64 - std::popcount(more);
    open = static_cast<unsigned>(std::countl_one(more));
  }
  for (; at < bytes.size(); ++at) {
    if (std::to_integer<unsigned>(bytes[at]) < 0x80) {
      ++count;
      open = 0;
    } else if (++open == kMostVarintBytes) {
      return -1;
    }
  }
  return count;
}

std::byte* write_varints(std::span<const std::byte> bytes, std::byte* out) noexcept {
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto* end = at + bytes.size();
  while (at != end) {
    std::uint64_t value = *at & 0x7f;
    for (unsigned shift = 7; *at++ >= 0x80; shift += 7)
      value |= static_cast<std::uint64_t>(*at & 0x7f) << shift;
    store_le(out, value);
    out += sizeof(value);
  }
  return out;
}

}  // namespace headrace::detail
