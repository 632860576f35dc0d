#include "shard/formats/table/unpacked_table.h"

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
  ArrowArray items{}, column{}, batch{};
  ArrowArray* items_pointer = &items;
  ArrowArray* column_pointer = &column;
  const void* no_validity = nullptr;

  // What TableBuilder makes of `batch_count` batches, in memory of `arena`.
  Result<std::shared_ptr<const UnpackedTable>> table(const std::vector<Column>& columns,
                                                     std::vector<ConstantCell> constants,
                                                     SlabArena& arena) {
    fill();
    TableBuilder builder(columns, std::move(constants), arena);
    for (int i = 0; i < batch_count; ++i) HEADRACE_TRY(builder.take(0, schema, batch));
    return builder.finish();
  }

  void fill() {
    item_schema.format = item_format.c_str();
    column_schema.format = format.c_str();
    column_schema.n_children = item_format.empty() ? 0 : 1;
    column_schema.children = &item_schema_pointer;
    schema.format = "+s";
    schema.n_children = 1;
    schema.children = &column_schema_pointer;
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
    batch.length = length;
    batch.n_buffers = 1;
    batch.buffers = &no_validity;
    batch.n_children = 1;
    batch.children = &column_pointer;
  }
};

class UnpackedTables : public ::testing::Test {
 protected:
  std::unique_ptr<SlabPool> pool_ = *SlabPool::create({.limit_bytes = 1 << 20});
  SlabArena arena_{*pool_, Slab()};
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

TEST_F(UnpackedTables, FindsTextsInSeveralBatches) {
  OneColumn one{.format = "u"};
  one.buffers = {kValidity, kOffsets, "abc"};
  one.length = 3;
  one.null_count = 1;
  one.batch_count = 2;
  auto table = one.table(column_of("str"), {{"x", true}}, arena_);
  ASSERT_FALSE(table.has_value());  // One column too many: a constant takes the only one.
  table = one.table(column_of("str"), {}, arena_);
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

TEST_F(UnpackedTables, RefusesOffsetsThatDoNotRise) {
  for (const auto& offsets :
       std::initializer_list<std::array<std::int32_t, 3>>{{0, 9, 3}, {0, -1, 3}, {4, 3, 3}}) {
    OneColumn one{.format = "z"};
    one.buffers = {nullptr, offsets.data(), "abc"};
    one.length = 2;
    auto table = one.table(column_of("bytes"), {}, arena_);
    ASSERT_TRUE(table.has_value());
    std::vector<ColumnBytes> cells(1);
    const Status first = (*table)->cut(0, cells);
    EXPECT_EQ(first.code(), Code::kCorrupt);
  }
}

TEST_F(UnpackedTables, RefusesOtherTypesThanTheIndexSays) {
  const std::int64_t values[] = {1, 2};
  OneColumn one{.format = "l"};
  one.buffers = {nullptr, values};
  one.length = 2;
  EXPECT_FALSE(one.table(column_of("int32", 4), {}, arena_).has_value());
  one.length = 3;
  one.buffers = {nullptr, nullptr};
  EXPECT_FALSE(one.table(column_of("int64", 8), {}, arena_).has_value());
  one.format = "+us:0,1";  // A union.
  EXPECT_FALSE(one.table(column_of("int64", 8), {}, arena_).has_value());
}

TEST_F(UnpackedTables, ReadsBitsFromAnOffset) {
  const std::uint8_t bits[] = {0b0110'0000, 0b1};
  OneColumn one{.format = "b"};
  one.buffers = {nullptr, bits};
  one.length = 4;
  one.offset = 5;
  auto table = one.table(column_of("bool", 1), {}, arena_);
  ASSERT_TRUE(table.has_value());
  std::string seen;
  std::vector<ColumnBytes> cells(1);
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE((*table)->cut(i, cells).ok());
    seen += value_of(cells[0])[0] == 1 ? '1' : '0';
  }
  EXPECT_EQ(seen, "1101");
}

TEST_F(UnpackedTables, SaysWhichItemsOfAListAreNull) {
  const std::uint8_t items[] = {7, 8, 9};
  OneColumn one{.format = "+l", .item_format = "C"};
  one.buffers = {nullptr, kOffsets};
  one.length = 3;
  one.item_length = 3;
  one.item_null_count = -1;  // Not counted.
  one.item_buffers = {kValidity, items};
  auto table = one.table(column_of("nullable_list:uint8"), {}, arena_);
  ASSERT_TRUE(table.has_value()) << table.error().message();
  std::vector<ColumnBytes> cells(1);
  ASSERT_TRUE((*table)->cut(1, cells).ok());
  EXPECT_EQ(value_of(cells[0]), std::string("\x01\x00\x01\x08\x09", 5));
  // Lists without a null are not changed by those beside them.
  ASSERT_TRUE((*table)->cut(0, cells).ok());
  EXPECT_EQ(value_of(cells[0]), std::string("\x00\x07", 2));
  ASSERT_TRUE((*table)->cut(2, cells).ok());
  EXPECT_EQ(value_of(cells[0]), std::string("\x00", 1));
  // Arrays have no place for a null.
  const auto array = one.table(column_of("ndarray:uint8:1", 1), {}, arena_);
  ASSERT_FALSE(array.has_value());
  EXPECT_EQ(array.error().code(), Code::kUnsupported);
  // A bitmap without a null is none.
  const std::uint8_t all[] = {0xff};
  one.item_buffers = {all, items};
  EXPECT_TRUE(one.table(column_of("ndarray:uint8:1", 1), {}, arena_).has_value());
  // Without nulls: a byte 0 and the items; and lists of another length than the array's are
  // refused.
  one.item_buffers = {nullptr, items};
  one.item_null_count = 0;
  table = one.table(column_of("nullable_list:uint8"), {}, arena_);
  ASSERT_TRUE(table.has_value());
  ASSERT_TRUE((*table)->cut(1, cells).ok());
  EXPECT_EQ(value_of(cells[0]), std::string("\x00\x08\x09", 3));
  table = one.table(column_of("ndarray:uint8:1", 1), {}, arena_);
  ASSERT_TRUE(table.has_value());
  EXPECT_TRUE((*table)->cut(0, cells).ok());
  EXPECT_EQ((*table)->cut(1, cells).code(), Code::kCorrupt);
  // Offsets past the items.
  one.item_length = 2;
  EXPECT_FALSE(one.table(column_of("nullable_list:uint8"), {}, arena_).has_value());
}

TEST_F(UnpackedTables, KeepsOnlyWhatTheArenaHas) {
  const std::string texts(600'000, 'x');
  const std::int32_t offsets[] = {0, 300'000, 600'000};
  OneColumn one{.format = "u"};
  one.buffers = {nullptr, offsets, texts.data()};
  one.length = 2;
  {
    SlabArena arena(*pool_, Slab());
    auto table = one.table(column_of("str"), {}, arena);
    ASSERT_TRUE(table.has_value()) << table.error().message();
    EXPECT_GE(arena.size_bytes(), 600'000U);
    EXPECT_GE(pool_->used_bytes(), 600'000U);
    std::vector<ColumnBytes> cells(1);
    ASSERT_TRUE((*table)->cut(1, cells).ok());
    EXPECT_EQ(cells[0].bytes.size(), 300'000U);
    EXPECT_NE(cells[0].bytes.data(), reinterpret_cast<const std::byte*>(texts.data()) + 300'000);
  }
  EXPECT_EQ(pool_->used_bytes(), 0U);
  // Two batches are more than the pool has.
  one.batch_count = 2;
  SlabArena arena(*pool_, Slab());
  const auto table = one.table(column_of("str"), {}, arena);
  ASSERT_FALSE(table.has_value());
  EXPECT_EQ(table.error().code(), Code::kExhausted);
}

TEST_F(UnpackedTables, CopiesTheRowsOfASlice) {
  const std::uint8_t items[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::int32_t offsets[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 6, 10};
  const std::uint8_t validity[] = {0xff, 0b1101};            // Of rows; row 9 is null.
  const std::uint8_t item_validity[] = {0b1110'1111, 0xff};  // Item 4 is null.
  OneColumn one{.format = "+l", .item_format = "C"};
  one.buffers = {validity, offsets};
  one.length = 3;
  one.offset = 9;
  one.null_count = 1;
  one.item_length = 12;
  one.item_null_count = 1;
  one.item_buffers = {item_validity, items};
  auto table = one.table(column_of("nullable_list:uint8"), {}, arena_);
  ASSERT_TRUE(table.has_value()) << table.error().message();
  std::vector<ColumnBytes> cells(1);
  ASSERT_TRUE((*table)->cut(0, cells).ok());
  EXPECT_FALSE(cells[0].present);
  ASSERT_TRUE((*table)->cut(1, cells).ok());
  EXPECT_EQ(value_of(cells[0]), std::string("\x01\x01\x00\x01\x04\x05\x06", 7));
  ASSERT_TRUE((*table)->cut(2, cells).ok());
  EXPECT_EQ(value_of(cells[0]), std::string("\x00\x07\x08\x09\x0a", 5));
}

TEST_F(UnpackedTables, PutsColumnsTogetherThatCameApart) {
  const std::int32_t numbers[] = {1, 2, 3};
  const auto columns = [] {
    auto out = column_of("int32", 4);
    out.push_back(out[0]);
    return out;
  }();
  OneColumn one{.format = "i"};
  one.buffers = {nullptr, numbers};
  one.length = 3;
  one.fill();
  TableBuilder builder(columns, {}, arena_);
  ASSERT_TRUE(builder.take(0, one.schema, one.batch).ok());
  ASSERT_TRUE(builder.take(1, one.schema, one.batch).ok());
  auto table = builder.finish();
  ASSERT_TRUE(table.has_value()) << table.error().message();
  std::vector<ColumnBytes> cells(2);
  ASSERT_TRUE((*table)->cut(2, cells).ok());
  EXPECT_EQ(value_of(cells[1]), std::string("\x03\0\0\0", 4));
  // A column that is missing, one too many, and columns of different lengths.
  TableBuilder missing(columns, {}, arena_);
  ASSERT_TRUE(missing.take(0, one.schema, one.batch).ok());
  EXPECT_FALSE(missing.take(2, one.schema, one.batch).ok());
  EXPECT_FALSE(missing.finish().has_value());
  TableBuilder longer(columns, {}, arena_);
  ASSERT_TRUE(longer.take(0, one.schema, one.batch).ok());
  ASSERT_TRUE(longer.take(0, one.schema, one.batch).ok());
  ASSERT_TRUE(longer.take(1, one.schema, one.batch).ok());
  EXPECT_FALSE(longer.finish().has_value());
}

}  // namespace
}  // namespace headrace::detail
