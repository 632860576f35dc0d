#pragma once
/// \file
/// Protobuf's wire format: tags, varints, length-delimited fields, unknown fields skipped. Pure;
/// nothing is allocated.
///
/// Source: protobuf.dev/programming-guides/encoding, checked against the verdicts of protobuf in
/// the reference cases (tfrecord/examples.json).
///
/// Threads: one owner each.
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::detail {

/// Reads the fields of one message in turn. Every function returns false when the bytes are not a
/// message; the reader is then of no more use.
class WireReader {
 public:
  enum Type : std::uint32_t {
    kVarint = 0,
    kFixed64 = 1,
    kDelimited = 2,
    kGroupBegin = 3,
    kGroupEnd = 4,
    kFixed32 = 5
  };

  explicit WireReader(std::span<const std::byte> bytes) noexcept
      : at_(reinterpret_cast<const unsigned char*>(bytes.data())), end_(at_ + bytes.size()) {}

  bool is_done() const noexcept { return at_ == end_; }
  const std::byte* position() const noexcept { return reinterpret_cast<const std::byte*>(at_); }

  bool read_varint(std::uint64_t& value) noexcept {
    if (at_ != end_ && *at_ < 0x80) {
      value = *at_++;
      return true;
    }
    return read_long_varint(value);
  }

  /// Field number (> 0) and wire type.
  bool read_tag(std::uint32_t& field, std::uint32_t& type) noexcept {
    std::uint64_t tag = 0;
    if (!read_varint(tag) || tag > 0xffffffffU) return false;
    field = static_cast<std::uint32_t>(tag >> 3);
    type = static_cast<std::uint32_t>(tag & 7);
    return field != 0;
  }

  /// What follows a tag of type kDelimited.
  bool read_bytes(std::span<const std::byte>& bytes) noexcept {
    std::uint64_t length = 0;
    if (!read_varint(length) || length > static_cast<std::uint64_t>(end_ - at_)) return false;
    bytes = {position(), length};
    at_ += length;
    return true;
  }

  bool read_fixed(std::size_t size, std::span<const std::byte>& bytes) noexcept {
    if (size > static_cast<std::size_t>(end_ - at_)) return false;
    bytes = {position(), size};
    at_ += size;
    return true;
  }

  /// Passes over what follows a tag.
  bool skip(std::uint32_t field, std::uint32_t type) noexcept;

 private:
  bool read_long_varint(std::uint64_t& value) noexcept;
  bool skip_group(std::uint32_t field) noexcept;

  const unsigned char* at_;
  const unsigned char* end_;
};

/// Number of varints that fill `bytes`; -1 when they do not: the last one is cut off, or one has
/// more than ten bytes.
std::int64_t count_varints(std::span<const std::byte> bytes) noexcept;

/// Writes the varints of `bytes` as int64 at `out` (any alignment). Returns behind the last one.
/// \pre count_varints(bytes) >= 0 values fit.
std::byte* write_varints(std::span<const std::byte> bytes, std::byte* out) noexcept;

}  // namespace headrace::detail
