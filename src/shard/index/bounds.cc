// One lookup reads one group's record and one word, whatever the number of samples: this is what
// lets the boundaries stay on disk (index_pages.h).
//
// The base of a group is lowered until no value lies below its line: distances need no sign. A
// lookup in a damaged index gives 0 or a wrong number but never reads outside of the tables;
// whoever uses the number compares it with the bytes that are there.
#include "shard/index/bounds.h"

#include <algorithm>
#include <bit>

#include "base/endian.h"
#include "shard/index/index_pages.h"

namespace headrace::detail {
namespace {

void append_u64(std::string& out, std::uint64_t value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out.append(bytes, sizeof(value));
}

// Above this width a value may straddle nine bytes; such groups (differences beyond 2^56) store
// whole words instead.
constexpr unsigned kWidestPacked = 56;
constexpr unsigned kWholeWords = 64;

void pack(std::span<const std::uint64_t> values, unsigned width, std::string& out) {
  if (width == kWholeWords) {
    for (std::uint64_t value : values) append_u64(out, value);
    return;
  }
  std::uint64_t pending = 0;
  unsigned pending_bits = 0;
  for (std::uint64_t value : values) {
    pending |= value << pending_bits;
    pending_bits += width;
    while (pending_bits >= 8) {
      out.push_back(static_cast<char>(pending & 0xff));
      pending >>= 8;
      pending_bits -= 8;
    }
  }
  if (pending_bits > 0) out.push_back(static_cast<char>(pending & 0xff));
}

bool is_even(std::span<const std::uint64_t> values) {
  if (values.size() < 2) return true;
  const std::uint64_t stride = values[1] - values[0];
  for (std::size_t i = 2; i < values.size(); ++i) {
    if (values[i] - values[i - 1] != stride) return false;
  }
  return true;
}

}  // namespace

BoundsRef BoundsWriter::append(std::span<const std::uint64_t> values) {
  BoundsRef ref;
  if (values.empty()) return ref;
  if (is_even(values)) {
    ref.base = values[0];
    ref.stride = values.size() > 1 ? values[1] - values[0] : 0;
    return ref;
  }
  ref.first_group = groups_.size() / kGroupRecordBytes;
  for (std::size_t begin = 0; begin < values.size(); begin += kBoundsGroup) {
    append_group(values.subspan(begin, std::min<std::size_t>(kBoundsGroup, values.size() - begin)));
  }
  return ref;
}

void BoundsWriter::append_group(std::span<const std::uint64_t> values) {
  // All arithmetic is modulo 2^64, so a line that dips below zero between two values is no special
  // case.
  const std::uint64_t steps = values.size() - 1;
  const std::uint64_t slope = steps == 0 ? 0 : (values[steps] - values[0]) / steps;
  std::int64_t lowest = 0;
  for (std::size_t j = 0; j < values.size(); ++j) {
    lowest = std::min(lowest, static_cast<std::int64_t>(values[j] - values[0] - j * slope));
  }
  const std::uint64_t base = values[0] + static_cast<std::uint64_t>(lowest);
  std::uint64_t distances[kBoundsGroup];
  std::uint64_t all_bits = 0;
  for (std::size_t j = 0; j < values.size(); ++j) {
    distances[j] = values[j] - base - j * slope;
    all_bits |= distances[j];
  }
  unsigned width = static_cast<unsigned>(std::bit_width(all_bits));
  if (width > kWidestPacked) width = kWholeWords;
  append_u64(groups_, base);
  append_u64(groups_, slope);
  append_u64(groups_, (static_cast<std::uint64_t>(packed_.size()) << 8) | width);
  if (width > 0) pack(std::span(distances, values.size()), width, packed_);
}

bool BoundsView::holds(const BoundsRef& ref, std::uint64_t count) const noexcept {
  if (ref.first_group == kNoGroups) return true;
  const std::uint64_t group_count = groups_.size() / kGroupRecordBytes;
  const std::uint64_t needed = count / kBoundsGroup + (count % kBoundsGroup != 0 ? 1 : 0);
  return ref.first_group <= group_count && needed <= group_count - ref.first_group;
}

std::uint64_t BoundsView::at(const BoundsRef& ref, std::uint64_t index) const noexcept {
  if (ref.first_group == kNoGroups) return ref.base + index * ref.stride;
  const std::uint64_t group = ref.first_group + index / kBoundsGroup;
  if (group >= groups_.size() / kGroupRecordBytes) return 0;
  const std::byte* record = groups_.data() + group * kGroupRecordBytes;
  std::byte record_copy[kGroupRecordBytes];
  if (pages_ != nullptr) {
    pages_->read(record, record_copy);
    record = record_copy;
  }
  const std::uint64_t place = load_le<std::uint64_t>(record + 16);
  const std::uint64_t j = index % kBoundsGroup;
  const std::uint64_t line =
      load_le<std::uint64_t>(record) + j * load_le<std::uint64_t>(record + 8);
  const unsigned width = static_cast<unsigned>(place & 0xff);
  if (width == 0) return line;
  if (width > kWholeWords || (width > kWidestPacked && width != kWholeWords)) return 0;
  const std::uint64_t bit = j * width;
  const std::uint64_t byte = (place >> 8) + (bit >> 3);
  // A value of up to 56 bits that begins anywhere in a byte ends within eight bytes: one load is
  // enough.
  if (packed_.size() < sizeof(std::uint64_t) || byte > packed_.size() - sizeof(std::uint64_t))
    return 0;
  const std::byte* packed = packed_.data() + byte;
  std::byte packed_copy[sizeof(std::uint64_t)];
  if (pages_ != nullptr) {
    pages_->read(packed, packed_copy);
    packed = packed_copy;
  }
  const std::uint64_t word = load_le<std::uint64_t>(packed);
  if (width == kWholeWords) return line + word;
  return line + ((word >> (bit & 7)) & ((std::uint64_t{1} << width) - 1));
}

}  // namespace headrace::detail
