// TFRecord: u64 length, masked CRC-32C of it, a tf.train.Example, masked CRC-32C of that. Text and
// bytes become bytes_list, integers int64_list, float16 and float32 float_list; arrays are
// flattened.
#include <array>
#include <bit>

#include "base/crc32c.h"
#include "base/endian.h"
#include "pack/sample_format.h"

namespace headrace::pack_detail {
namespace {

using Kind = CellType::Kind;

// Tags of protobuf: field number << 3 | wire type (2: length-delimited).
constexpr std::byte kField1{0x0a};
constexpr std::byte kField2{0x12};
constexpr std::byte kField3{0x1a};

void append_varint(std::vector<std::byte>& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::byte>(value | 0x80));
  out.push_back(static_cast<std::byte>(value));
}

std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8U; }

class TfRecordFormat final : public SampleFormat {
 public:
  explicit TfRecordFormat(Columns columns) : columns_(std::move(columns)) {}

  Status append(std::span<const std::span<const std::byte>> cells, std::uint64_t,
                std::vector<std::byte>& out) override {
    features_.clear();
    for (const TargetColumn& column : columns_) {
      const auto cell = cells[column.cell];
      if (cell.data() == nullptr) continue;
      Status status = make_list(column.type, cell);
      if (!status.ok()) return in_column(column, std::move(status));
      entry_.clear();
      append_field(entry_, kField1,
                   std::as_bytes(std::span(column.name.data(), column.name.size())));
      append_field(entry_, kField2, list_);
      append_field(features_, kField1, entry_);
    }
    entry_.clear();
    append_field(entry_, kField1, features_);
    std::array<std::byte, 8> length{};
    store_le(length.data(), std::uint64_t{entry_.size()});
    append_bytes(out, length);
    append_u32(out, masked(crc32c(length)));
    append_bytes(out, entry_);
    append_u32(out, masked(crc32c(entry_)));
    return {};
  }
  std::string head(std::span<const std::uint64_t>) const override { return {}; }
  std::uint64_t frame_bytes(std::uint64_t) const override { return 0; }
  const Columns& columns() const override { return columns_; }

 private:
  static void append_field(std::vector<std::byte>& out, std::byte tag,
                           std::span<const std::byte> bytes) {
    out.push_back(tag);
    append_varint(out, bytes.size());
    append_bytes(out, bytes);
  }

  /// A Feature: bytes_list = 1, float_list = 2, int64_list = 3.
  void finish_list(std::byte kind) {
    list_.clear();
    append_field(list_, kind, values_);
  }

  Status make_list(const CellType& type, std::span<const std::byte> cell) {
    values_.clear();
    if (type.kind == Kind::kBytes || type.kind == Kind::kStr || type.kind == Kind::kJson) {
      append_field(values_, kField1, cell);
      finish_list(kField1);
      return {};
    }
    numbers_.clear();
    if (type.kind == Kind::kAsciiInt) {
      HEADRACE_TRY_ASSIGN(const std::int64_t value, parse_cell_integer(cell));
      append_varint(numbers_, static_cast<std::uint64_t>(value));
      append_field(values_, kField1, numbers_);
      finish_list(kField3);
      return {};
    }
    ArrayView view{.shape = {}, .data = cell, .dtype = type.dtype};
    if (type.is_array()) {
      HEADRACE_TRY_ASSIGN(view, type.array_of(cell));
    } else if (cell.size() != type.dtype->size_bytes) {
      return Status(Code::kCorrupt, "a number of another size");
    }
    return make_numbers(view);
  }

  Status make_numbers(const ArrayView& view) {
    const Dtype& dtype = *view.dtype;
    if (!dtype.is_integer() && dtype.size_bytes == 8) {
      return Status(
          Code::kUnsupported,
          "tf.train.Example has no float64; name it float32 in columns=, or change the data");
    }
    for (std::size_t at = 0; at < view.data.size(); at += dtype.size_bytes) {
      const std::byte* const number = view.data.data() + at;
      if (dtype.is_integer()) {
        HEADRACE_TRY_ASSIGN(const std::int64_t value, dtype.integer_at(number));
        append_varint(numbers_, static_cast<std::uint64_t>(value));
      } else {
        append_u32(numbers_,
                   std::bit_cast<std::uint32_t>(static_cast<float>(dtype.real_at(number))));
      }
    }
    if (!numbers_.empty()) append_field(values_, kField1, numbers_);
    finish_list(dtype.is_integer() ? kField3 : kField2);
    return {};
  }

  Columns columns_;
  std::vector<std::byte> numbers_, values_, list_, entry_, features_;  // Kept for their memory.
};

}  // namespace

Result<std::unique_ptr<SampleFormat>> make_tfrecord_format(Columns columns) {
  return std::unique_ptr<SampleFormat>(std::make_unique<TfRecordFormat>(std::move(columns)));
}

}  // namespace headrace::pack_detail
