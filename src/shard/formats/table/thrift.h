#pragma once
/// \file
/// Thrift's compact protocol, as far as Parquet footers need it: a bounded reader and a writer.
///
/// Source: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
///
/// Threads: one owner each; no state outside.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::detail {

enum class ThriftType : std::uint8_t {
  kStop = 0,
  kTrue = 1,
  kFalse = 2,
  kByte = 3,
  kI16 = 4,
  kI32 = 5,
  kI64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12,
  kUuid = 13,
};

/// Reads one value after another. After the first byte that does not fit, failed() is true, every
/// read returns 0 or nothing, and no loop over fields or items goes on.
class ThriftReader {
 public:
  explicit ThriftReader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  struct Field {
    std::int32_t id = 0;
    ThriftType type = ThriftType::kStop;
  };
  /// The next field of a struct; `last` is the id before it (0 at first), updated. False at the
  /// end.
  bool next_field(std::int32_t& last, Field& field) noexcept;
  struct List {
    std::uint64_t count = 0;  ///< At most the bytes that are left.
    ThriftType type = ThriftType::kStop;
  };
  List list() noexcept;
  std::int64_t integer() noexcept;  ///< I16, I32, I64.
  std::span<const std::byte> binary() noexcept;
  std::string_view text() noexcept;
  /// Passes a value of a field, or (`in_list`) of a list, where a bool is a byte.
  void skip(ThriftType type, bool in_list = false) noexcept { skip(type, in_list, 0); }
  /// Bytes of the value that skip() passes.
  std::span<const std::byte> take(ThriftType type) noexcept;
  std::size_t position() const noexcept { return at_; }  ///< Bytes read.
  bool failed() const noexcept { return failed_; }
  void fail() noexcept { failed_ = true; }

 private:
  /// Parquet nests 6 deep; hostile bytes may nest as deep as they are long.
  static constexpr int kMostDepth = 32;
  std::uint8_t byte() noexcept;
  std::uint64_t varint() noexcept;
  void skip(ThriftType type, bool in_list, int depth) noexcept;

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

/// Writes structs field by field, ids rising.
class ThriftWriter {
 public:
  void begin_struct() { ids_.push_back(0); }
  void end_struct() {
    out_.push_back('\0');
    ids_.pop_back();
  }
  void field(std::int32_t id, ThriftType type);
  void integer(std::int64_t value);
  void i32_field(std::int32_t id, std::int64_t value);
  void i64_field(std::int32_t id, std::int64_t value);
  void list(std::uint64_t count, ThriftType type);
  /// Bytes of a value as take() gave them.
  void raw(std::span<const std::byte> bytes);
  std::string take() { return std::move(out_); }

 private:
  void varint(std::uint64_t value);
  std::string out_;
  std::vector<std::int32_t> ids_;  ///< Last field of each open struct.
};

}  // namespace headrace::detail
