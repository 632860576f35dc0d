#pragma once
/// \file
/// MsgpackReader: the tokens of msgpack values, one after the other. Pure; nothing is allocated.
///
/// Source: github.com/msgpack/msgpack/blob/master/spec.md.
///
/// Threads: one owner each.
#include <cstdint>
#include <span>

#include "headrace/status.h"

namespace headrace {

struct MsgpackToken {
  /// kTimestamp is the extension type -1; there is no token of other extension types.
  enum class Type : std::uint8_t {
    kNil,
    kBool,
    kInt,   ///< Below 0.
    kUint,  ///< From 0 on, whatever it was written as.
    kFloat,
    kString,  ///< Not checked to be UTF-8.
    kBinary,
    kArray,
    kMap,
    kTimestamp
  };
  Type type = Type::kNil;
  bool is_true = false;
  std::int64_t int_value = 0;  ///< Of kInt; of kTimestamp: seconds since 1970.
  std::uint64_t uint_value = 0;
  double float_value = 0;
  std::uint32_t nanoseconds = 0;          ///< Of kTimestamp; below 10^9.
  std::uint32_t count = 0;                ///< Values of an array, pairs of a map: they follow.
  std::span<const std::byte> bytes = {};  ///< Of kString and kBinary; in the input.
};

class MsgpackReader {
 public:
  explicit MsgpackReader(std::span<const std::byte> bytes) noexcept : left_(bytes) {}

  bool is_done() const noexcept { return left_.empty(); }
  /// Errors: kCorrupt (the bytes end inside of it; a byte that begins nothing; a timestamp that is
  /// none), kUnsupported (another extension type: names it).
  Result<MsgpackToken> next();

 private:
  Result<std::span<const std::byte>> take(std::uint64_t count);
  Result<std::uint64_t> take_number(std::size_t count_bytes);
  Result<MsgpackToken> take_bytes(MsgpackToken::Type type, std::size_t length_bytes);
  Result<MsgpackToken> take_count(MsgpackToken::Type type, std::size_t length_bytes);
  Result<MsgpackToken> take_extension(std::uint64_t length);
  Result<MsgpackToken> take_scalar(unsigned head);

  std::span<const std::byte> left_;
};

/// Arrays and maps within each other, at most; what `msgpack` of Python allows.
constexpr std::size_t kMostMsgpackDepth = 512;

/// Whether `bytes` are one value and nothing behind it, with text that is UTF-8 and maps whose keys
/// are neither arrays nor maps nor timestamps. Errors: those of next(), kCorrupt.
Status check_msgpack(std::span<const std::byte> bytes);

}  // namespace headrace
