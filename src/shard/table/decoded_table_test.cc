#include "shard/table/decoded_table.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace::detail {
namespace {

// A stream of one batch of one column, whose buffers the test owns.
struct OneColumn {
  std::string format;
  std::string item_format = {};  // Not empty: a list of these.
  std::vector<const void*> buffers = {}, item_buffers = {};
  std::int64_t length = 0, null_count = 0, offset = 0, item_length = 0, item_null_count = 0;
  int batch_count = 1;

  ArrowSchema item_schema{}, column_schema{}, schema{};
  ArrowSchema* item_schema_pointer = &item_schema;
  ArrowSchema* column_schema_pointer = &column_schema;
  ArrowArray items{}, column{};
  ArrowArray* items_pointer = &items;
  ArrowArray* column_pointer = &column;
  const void* no_validity = nullptr;
  int served = 0;

  ArrowOwned<ArrowArrayStream> stream() {
    ArrowOwned<ArrowArrayStream> out;
    out.out()->private_data = this;
    out.out()->get_schema = [](ArrowArrayStream* s, ArrowSchema* to) {
      static_cast<OneColumn*>(s->private_data)->fill(*to);
      return 0;
    };
    out.out()->get_next = [](ArrowArrayStream* s, ArrowArray* to) {
      static_cast<OneColumn*>(s->private_data)->fill(*to);
      return 0;
    };
    out.out()->get_last_error = [](ArrowArrayStream*) -> const char* { return nullptr; };
    out.out()->release = [](ArrowArrayStream* s) { s->release = nullptr; };
    return out;
  }

  void fill(ArrowSchema& to) {
    item_schema.format = item_format.c_str();
    column_schema.format = format.c_str();
    column_schema.n_children = item_format.empty() ? 0 : 1;
    column_schema.children = &item_schema_pointer;
    schema.format = "+s";
    schema.n_children = 1;
    schema.children = &column_schema_pointer;
    schema.release = [](ArrowSchema* s) { s->release = nullptr; };
    to = schema;
  }

  void fill(ArrowArray& to) {
    to = ArrowArray{};
    if (served++ == batch_count) return;
    items.length = item_length;
    items.null_count = item_null_count;
    items.n_buffers = static_cast<std::int64_t>(item_buffers.size());
    items.buffers = item_buffers.data();
    column.length = length;
    column.null_count = null_count;
    column.offset = offset;
    column.n_buffers = static_cast<std::int64_t>(buffers.size());
    column.buffers = buffers.data();
    column.n_children = item_format.empty() ? 0 : 1;
    column.children = &items_pointer;
    to.length = length;
    to.n_buffers = 1;
    to.buffers = &no_validity;
    to.n_children = 1;
    to.children = &column_pointer;
    to.release = [](ArrowArray* a) { a->release = nullptr; };
  }
};

std::vector<Column> column_of(const std::string& encoding, std::uint64_t size = 0) {
  return {{.name = "c", .encoding = encoding, .dtype = {}, .shape = {}, .fixed_size_bytes = size}};
}

std::string value_of(const ColumnBytes& cell) {
  std::string out(cell.size(), '\0');
  cell.write_to(std::as_writable_bytes(std::span(out)));
  return out;
}

constexpr std::int32_t kOffsets[] = {0, 1, 3, 3};
constexpr std::uint8_t kValidity[] = {0b101};

TEST(DecodedTable, FindsTextsInSeveralBatches) {
  OneColumn one{.format = "u"};
  one.buffers = {kValidity, kOffsets, "abc"};
  one.length = 3;
  one.null_count = 1;
  one.batch_count = 2;
  auto table = DecodedTable::from_stream(one.stream(), column_of("str"), {{"x", true}});
  ASSERT_FALSE(table.has_value());  // One column too many: a constant takes the only one.
  one.served = 0;
  table = DecodedTable::from_stream(one.stream(), column_of("str"), {});
  ASSERT_TRUE(table.has_value()) << table.error().message();
  EXPECT_EQ((*table)->row_count(), 6U);
  std::vector<ColumnBytes> cells(1);
  for (const std::uint64_t base : {0U, 3U}) {
    ASSERT_TRUE((*table)->cut(base, cells).ok());
    EXPECT_EQ(value_of(cells[0]), "a");
    ASSERT_TRUE((*table)->cut(base + 1, cells).ok());
    EXPECT_FALSE(cells[0].present);
    ASSERT_TRUE((*table)->cut(base + 2, cells).ok());
    EXPECT_TRUE(cells[0].present);
    EXPECT_EQ(value_of(cells[0]), "");
  }
}

TEST(DecodedTable, RefusesOffsetsThatDoNotRise) {
  for (const auto& offsets :
       std::initializer_list<std::array<std::int32_t, 3>>{{0, 9, 3}, {0, -1, 3}, {4, 3, 3}}) {
    OneColumn one{.format = "z"};
    one.buffers = {nullptr, offsets.data(), "abc"};
    one.length = 2;
    auto table = DecodedTable::from_stream(one.stream(), column_of("bytes"), {});
    ASSERT_TRUE(table.has_value());
    std::vector<ColumnBytes> cells(1);
    const Status first = (*table)->cut(0, cells);
    EXPECT_EQ(first.code(), Code::kCorrupt);
  }
}

TEST(DecodedTable, RefusesOtherTypesThanTheIndexSays) {
  const std::int64_t values[] = {1, 2};
  OneColumn one{.format = "l"};
  one.buffers = {nullptr, values};
  one.length = 2;
  EXPECT_FALSE(DecodedTable::from_stream(one.stream(), column_of("int32", 4), {}).has_value());
  one.served = 0;
  one.length = 3;
  one.buffers = {nullptr, nullptr};
  EXPECT_FALSE(DecodedTable::from_stream(one.stream(), column_of("int64", 8), {}).has_value());
  one.served = 0;
  one.format = "+us:0,1";  // A union.
  EXPECT_FALSE(DecodedTable::from_stream(one.stream(), column_of("int64", 8), {}).has_value());
}

TEST(DecodedTable, ReadsBitsFromAnOffset) {
  const std::uint8_t bits[] = {0b0110'0000, 0b1};
  OneColumn one{.format = "b"};
  one.buffers = {nullptr, bits};
  one.length = 4;
  one.offset = 5;
  auto table = DecodedTable::from_stream(one.stream(), column_of("bool", 1), {});
  ASSERT_TRUE(table.has_value());
  std::string seen;
  std::vector<ColumnBytes> cells(1);
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE((*table)->cut(i, cells).ok());
    seen += value_of(cells[0])[0] == 1 ? '1' : '0';
  }
  EXPECT_EQ(seen, "1101");
}

TEST(DecodedTable, SaysWhichItemsOfAListAreNull) {
  const std::uint8_t items[] = {7, 8, 9};
  OneColumn one{.format = "+l", .item_format = "C"};
  one.buffers = {nullptr, kOffsets};
  one.length = 3;
  one.item_length = 3;
  one.item_null_count = -1;  // Not counted.
  one.item_buffers = {kValidity, items};
  auto table = DecodedTable::from_stream(one.stream(), column_of("nullable_list:uint8"), {});
  ASSERT_TRUE(table.has_value()) << table.error().message();
  std::vector<ColumnBytes> cells(1);
  ASSERT_TRUE((*table)->cut(1, cells).ok());
  EXPECT_EQ(value_of(cells[0]), std::string("\x01\x00\x01\x08\x09", 5));
  ASSERT_TRUE((*table)->cut(2, cells).ok());
  EXPECT_EQ(value_of(cells[0]), std::string("\x01", 1));
  // Arrays have no place for a null.
  one.served = 0;
  const auto array = DecodedTable::from_stream(one.stream(), column_of("ndarray:uint8:1", 1), {});
  ASSERT_FALSE(array.has_value());
  EXPECT_EQ(array.error().code(), Code::kUnsupported);
  // Without nulls: a byte 0 and the items; and lists of another length than the array's are
  // refused.
  one.item_buffers = {nullptr, items};
  one.item_null_count = 0;
  one.served = 0;
  table = DecodedTable::from_stream(one.stream(), column_of("nullable_list:uint8"), {});
  ASSERT_TRUE(table.has_value());
  ASSERT_TRUE((*table)->cut(1, cells).ok());
  EXPECT_EQ(value_of(cells[0]), std::string("\x00\x08\x09", 3));
  one.served = 0;
  table = DecodedTable::from_stream(one.stream(), column_of("ndarray:uint8:1", 1), {});
  ASSERT_TRUE(table.has_value());
  EXPECT_TRUE((*table)->cut(0, cells).ok());
  EXPECT_EQ((*table)->cut(1, cells).code(), Code::kCorrupt);
  // Offsets past the items.
  one.item_length = 2;
  one.served = 0;
  EXPECT_FALSE(
      DecodedTable::from_stream(one.stream(), column_of("nullable_list:uint8"), {}).has_value());
}

}  // namespace
}  // namespace headrace::detail
