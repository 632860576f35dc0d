#include "shard/formats/table/parquet_footer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/endian.h"
#include "io/testing/fake_store.h"
#include "shard/formats/table/thrift.h"

namespace headrace::detail {
namespace {

const std::filesystem::path kReference =
    std::filesystem::path(HEADRACE_SOURCE_DIR) / ".." / "shared" / "reference" / "parquet";

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Result<ParquetFooter> parse(const std::string& file) {
  HEADRACE_TRY_ASSIGN(const std::uint64_t length,
                      parquet_footer_bytes(bytes_of(file), file.size()));
  return parse_parquet_footer(bytes_of(file).last(length), file.size());
}

// A file of one required INT32 column `a`, in one row group, whose chunk lies at [4, 4 + chunk).
struct SmallFile {
  std::int64_t row_count = 3;
  std::int64_t value_count = 3;
  std::int64_t chunk_bytes = 20;
  std::int64_t data_page = 4;
  std::int64_t dictionary_page = 0;
  std::int64_t physical_type = 1;
  std::int64_t total_rows = 3;
  std::int64_t children = 1;
  std::size_t columns = 1;
  bool is_elsewhere = false;
  bool encrypted = false;

  void write_chunk(ThriftWriter& w) const {
    w.begin_struct();
    if (is_elsewhere) {
      w.field(1, ThriftType::kBinary);
      const std::string path("\x03xyz", 4);
      w.raw(bytes_of(path));
    }
    w.i64_field(2, 0);
    w.field(3, ThriftType::kStruct);
    w.begin_struct();
    w.i32_field(1, physical_type);
    w.field(2, ThriftType::kList);
    w.list(1, ThriftType::kI32);
    w.integer(0);
    w.field(3, ThriftType::kList);
    w.list(0, ThriftType::kBinary);
    w.i32_field(4, 0);
    w.i64_field(5, value_count);
    w.i64_field(6, chunk_bytes);
    w.i64_field(7, chunk_bytes);
    w.i64_field(9, data_page);
    if (dictionary_page != 0) w.i64_field(11, dictionary_page);
    w.end_struct();
    if (encrypted) {
      w.field(8, ThriftType::kStruct);
      w.begin_struct();
      w.end_struct();
    }
    w.end_struct();
  }

  std::string write() const {
    ThriftWriter w;
    w.begin_struct();
    w.i32_field(1, 2);
    w.field(2, ThriftType::kList);
    w.list(2, ThriftType::kStruct);
    w.begin_struct();
    w.i32_field(5, children);
    w.end_struct();
    w.begin_struct();
    w.i32_field(1, 1);
    w.i32_field(3, 0);
    w.end_struct();
    w.i64_field(3, total_rows);
    w.field(4, ThriftType::kList);
    w.list(1, ThriftType::kStruct);
    w.begin_struct();
    w.field(1, ThriftType::kList);
    w.list(columns, ThriftType::kStruct);
    for (std::size_t i = 0; i < columns; ++i) write_chunk(w);
    w.i64_field(2, chunk_bytes);
    w.i64_field(3, row_count);
    w.end_struct();
    w.end_struct();
    const std::string metadata = w.take();
    std::string file = "PAR1" + std::string(20, 'x') + metadata + "    PAR1";
    store_le<std::uint32_t>(reinterpret_cast<std::byte*>(file.data() + file.size() - 8),
                            static_cast<std::uint32_t>(metadata.size()));
    return file;
  }
};

void expect_error(const std::string& file, Code code, std::string_view text) {
  const auto footer = parse(file);
  ASSERT_FALSE(footer.has_value()) << text;
  EXPECT_EQ(footer.error().code(), code) << footer.error().message();
  EXPECT_NE(footer.error().message().find(text), std::string_view::npos)
      << footer.error().message();
}

TEST(ParquetFooter, ReadsWhatArrowWrote) {
  if (!std::filesystem::exists(kReference)) GTEST_SKIP() << "no reference data here";
  auto footer = parse(testing::read_file(kReference / "zstd.parquet"));
  ASSERT_TRUE(footer.has_value()) << footer.error().message();
  EXPECT_EQ(footer->row_count, 300U);
  ASSERT_EQ(footer->row_groups.size(), 4U);
  EXPECT_EQ(footer->row_groups[3].row_count, 72U);
  EXPECT_EQ(footer->leaves.size(), 14U);
  // i64 of the first group, as pyarrow prints it.
  const ParquetChunk& chunk = footer->row_groups[0].chunks[0];
  EXPECT_EQ(chunk.begin_bytes, 4U);
  EXPECT_EQ(chunk.dictionary_bytes, 154U);
  EXPECT_EQ(chunk.length_bytes, 294U);
  EXPECT_EQ(chunk.uncompressed_bytes, 467U);
  EXPECT_EQ(chunk.value_count, 76U);
  EXPECT_EQ(chunk.unpacked_bytes, 76U * 8 + 76 / 8);
}

TEST(ParquetFooter, WritesWhatItReads) {
  if (!std::filesystem::exists(kReference)) GTEST_SKIP() << "no reference data here";
  for (const auto& entry : std::filesystem::directory_iterator(kReference)) {
    if (entry.path().extension() != ".parquet") continue;
    auto footer = parse(testing::read_file(entry.path()));
    ASSERT_TRUE(footer.has_value()) << entry.path();
    for (ParquetRowGroup& group : footer->row_groups) {
      for (ParquetChunk& chunk : group.chunks)
        chunk.begin_bytes = chunk.length_bytes = chunk.dictionary_bytes = 0;
    }
    const std::string file = compose_parquet_footer(footer->head, footer->key_values,
                                                    footer->leaves, footer->row_groups);
    auto again = parse(file);
    ASSERT_TRUE(again.has_value()) << entry.path() << again.error().message();
    EXPECT_EQ(again->head, footer->head);
    EXPECT_EQ(again->key_values, footer->key_values);
    EXPECT_EQ(again->row_count, footer->row_count);
    ASSERT_EQ(again->row_groups.size(), footer->row_groups.size());
    for (std::size_t g = 0; g < footer->row_groups.size(); ++g) {
      for (std::size_t c = 0; c < footer->leaves.size(); ++c) {
        EXPECT_EQ(again->row_groups[g].chunks[c].value_count,
                  footer->row_groups[g].chunks[c].value_count);
        EXPECT_EQ(again->row_groups[g].chunks[c].encodings,
                  footer->row_groups[g].chunks[c].encodings);
      }
    }
  }
}

TEST(ParquetFooter, RefusesWhatDoesNotFit) {
  ASSERT_TRUE(parse(SmallFile{}.write()).has_value());
  const std::string good = SmallFile{}.write();
  expect_error(good.substr(0, good.size() - 1), Code::kCorrupt, "PAR1");
  expect_error("PAR1", Code::kCorrupt, "too short");
  std::string huge = good;
  store_le<std::uint32_t>(reinterpret_cast<std::byte*>(huge.data() + huge.size() - 8), 0x7fffffffU);
  expect_error(huge, Code::kCorrupt, "footer of");
  std::string encrypted = good;
  encrypted.replace(encrypted.size() - 1, 1, "E");
  expect_error(encrypted, Code::kUnsupported, "encrypted footer");
  expect_error(SmallFile{.chunk_bytes = 21}.write(), Code::kCorrupt, "outside the file");
  expect_error(SmallFile{.data_page = -4}.write(), Code::kCorrupt, "impossible");
  expect_error(SmallFile{.data_page = std::int64_t{1} << 62}.write(), Code::kCorrupt, "outside");
  expect_error(SmallFile{.value_count = -1}.write(), Code::kCorrupt, "impossible");
  expect_error(SmallFile{.row_count = -1}.write(), Code::kCorrupt, "incomplete");
  expect_error(SmallFile{.physical_type = 2}.write(), Code::kCorrupt, "another type");
  expect_error(SmallFile{.total_rows = 4}.write(), Code::kCorrupt, "differ in rows");
  expect_error(SmallFile{.children = 2}.write(), Code::kCorrupt, "schema");
  expect_error(SmallFile{.columns = 2}.write(), Code::kCorrupt, "number of columns");
  expect_error(SmallFile{.is_elsewhere = true}.write(), Code::kUnsupported, "other files");
  expect_error(SmallFile{.encrypted = true}.write(), Code::kUnsupported, "encrypted columns");
  expect_error(
      SmallFile{.row_count = std::int64_t{1} << 32, .total_rows = std::int64_t{1} << 32}.write(),
      Code::kUnsupported, "2^32");
}

TEST(ParquetFooter, NeverReadsPastADamagedFooter) {
  const std::string good = SmallFile{.dictionary_page = 0}.write();
  for (std::size_t at = 24; at < good.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      (void)parse(bad);  // Any verdict; sanitizers watch.
    }
  }
}

TEST(Thrift, BoundsItsNesting) {
  // 200 structs in one another: each field header says "field 1, struct".
  const std::string deep(200, '\x1c');
  ThriftReader reader(bytes_of(deep));
  reader.skip(ThriftType::kStruct);
  EXPECT_TRUE(reader.failed());
}

TEST(Thrift, BoundsListsByWhatIsThere) {
  const std::string list = "\xfc\xff\xff\xff\xff\x0f";  // A list of 2^32 - 1 structs.
  ThriftReader reader(bytes_of(list));
  EXPECT_EQ(reader.list().count, 0U);
  EXPECT_TRUE(reader.failed());
}

}  // namespace
}  // namespace headrace::detail
