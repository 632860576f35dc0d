#pragma once
/// \file
/// Messages of Arrow IPC and the flatbuffers in them. Pure; every read is checked.
///
/// Source: https://flatbuffers.dev/internals/, Message.fbs of Arrow.
///
/// Threads: any.
#include <cstdint>
#include <optional>
#include <span>

#include "base/endian.h"
#include "headrace/status.h"

namespace headrace::detail {

inline constexpr std::uint16_t kMetadataV5 = 4;      ///< MetadataVersion.V5
inline constexpr std::uint8_t kSchemaMessage = 1;    ///< MessageHeader.Schema
inline constexpr std::uint8_t kDictionaryBatch = 2;  ///< MessageHeader.DictionaryBatch
inline constexpr std::uint8_t kRecordBatch = 3;      ///< MessageHeader.RecordBatch
/// What a message begins with: kContinuation, then the i32 length of its flatbuffer; 0 ends a
/// stream.
inline constexpr std::uint64_t kMessagePrefixBytes = 8;
inline constexpr std::uint32_t kContinuation = 0xffff'ffffU;

/// One table of a flatbuffer. What does not fit into the buffer is absent.
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

/// A message: its flatbuffer and where its body begins.
struct IpcMessageText {
  FlatTable message;
  std::uint64_t prefix_bytes = 0;  ///< Before the body.
  std::uint8_t kind() const { return message.scalar<std::uint8_t>(1, 0); }
  std::int64_t body_bytes() const { return message.scalar<std::int64_t>(3, 0); }
};
/// `bytes`: from the begin of a message on, at least to its body. Errors: kCorrupt.
Result<IpcMessageText> parse_ipc_message(std::span<const std::byte> bytes);

}  // namespace headrace::detail
