#include <gtest/gtest.h>

#include <string>

#include "shard/formats/litdata/data_spec.h"
#include "shard/formats/litdata/fernet.h"
#include "shard/formats/litdata/framed.h"
#include "shard/formats/litdata/item.h"
#include "shard/formats/litdata/leaf_format.h"
#include "shard/formats/litdata/litdata_index.h"
#include "shard/formats/litdata/litdata_layout.h"

namespace headrace::detail {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}
void append_u32(std::string& out, std::uint64_t value) {
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(value >> shift));
}
void append_u64(std::string& out, std::uint64_t value) {
  append_u32(out, value);
  append_u32(out, value >> 32);
}

constexpr std::string_view kLeaf = R"({"type": null, "context": null, "children_spec": []})";

TEST(DataSpec, NamesLeavesByTheirPath) {
  const std::string leaf(kLeaf);
  auto names = parse_data_spec("[1, " + leaf + "]");
  ASSERT_TRUE(names.has_value());
  EXPECT_EQ(*names, std::vector<std::string>{"data"});
  names = parse_data_spec(
      R"([1, {"type": "builtins.dict", "context": "[\"a\", 7]", "children_spec": [)" + leaf +
      R"(, {"type": "builtins.tuple", "context": "null", "children_spec": [)" + leaf + "," + leaf +
      "]}]}]");
  ASSERT_TRUE(names.has_value()) << names.error().message();
  EXPECT_EQ(*names, (std::vector<std::string>{"a", "7.0", "7.1"}));
  names = parse_data_spec(
      R"([1, {"type": "collections.defaultdict", "context": "{\"dict_context\": [\"k\"]}",
              "children_spec": [)" +
      leaf + "]}]");
  ASSERT_TRUE(names.has_value());
  EXPECT_EQ(*names, std::vector<std::string>{"k"});
}

TEST(DataSpec, RefusesWhatIsNoTree) {
  for (const char* text : {"", "[]", "[1]", "{}", "[1, 2]", R"([1, {"type": null}])"})
    EXPECT_EQ(parse_data_spec(text).error().code(), Code::kCorrupt) << text;
  EXPECT_EQ(
      parse_data_spec(R"([1, {"type": "x", "context": null, "children_spec": []}])").error().code(),
      Code::kUnsupported);
  const std::string leaf(kLeaf);
  const auto twice = parse_data_spec(
      R"([1, {"type": "builtins.dict", "context": "[\"a\", \"a\"]", "children_spec": [)" + leaf +
      "," + leaf + "]}]");
  EXPECT_EQ(twice.error().code(), Code::kUnsupported);
}

TEST(LeafFormat, SaysWhatBytesMean) {
  const auto encoding = [](std::string_view format) {
    Column column;
    const Status status = describe_litdata_leaf(format, false, column);
    return status.ok() ? column.encoding + "/" + column.dtype : std::string(status.message());
  };
  EXPECT_EQ(encoding("int"), "int/int64");
  EXPECT_EQ(encoding("no_header_tensor:16"), "array:int32/");
  EXPECT_EQ(encoding("no_header_numpy:9"), "array:float32/");
  EXPECT_EQ(encoding("jpeg_array"), "list[bytes]/");
  EXPECT_EQ(encoding("image:png"), "image:png/");
  EXPECT_EQ(encoding("mine"), "bytes/");
  Column column;
  for (const char* format : {"pickle", "graph:pickle"}) {
    EXPECT_EQ(describe_litdata_leaf(format, false, column).code(), Code::kUnsupported);
    EXPECT_TRUE(describe_litdata_leaf(format, true, column).ok());
    EXPECT_TRUE(is_pickled_leaf(column));
  }
  EXPECT_EQ(describe_litdata_leaf("no_header_numpy:14", false, column).code(), Code::kUnsupported);
  EXPECT_EQ(describe_litdata_leaf("no_header_numpy:99", false, column).code(), Code::kCorrupt);
  EXPECT_EQ(describe_litdata_leaf("no_header_numpy:x", false, column).code(), Code::kCorrupt);
}

TEST(LitDataItem, CutsLeavesBySizes) {
  std::vector<Column> columns(2);
  columns[0].fixed_size_bytes = 8;
  const ItemLayout layout(columns);
  std::string item;
  append_u32(item, 8);
  append_u32(item, 2);
  item += "12345678ok";
  ColumnBytes out[2];
  EXPECT_EQ(layout.cut(as_bytes(item), out), "");
  EXPECT_EQ(out[1].bytes.size(), 2U);
  EXPECT_NE(layout.cut(as_bytes(item).first(7), out), "");
  EXPECT_NE(layout.cut(as_bytes(item + "x"), out), "");
  EXPECT_NE(layout.cut(as_bytes(item).first(17), out), "");
  item[0] = 4;  // An int of 4 bytes.
  EXPECT_NE(layout.cut(as_bytes(item), out), "");
}

TEST(LitDataItem, FindsItemsByTheTableOfTheChunk) {
  std::string chunk;
  for (const std::uint64_t word : {2U, 16U, 18U, 21U}) append_u32(chunk, word);
  chunk += "aabbb";
  auto item = chunk_item(as_bytes(chunk), 2, 1);
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(item->size(), 3U);
  EXPECT_EQ(chunk_item(as_bytes(chunk), 3, 1).error().code(), Code::kCorrupt);
  EXPECT_EQ(chunk_item(as_bytes(chunk).first(20), 2, 1).error().code(), Code::kCorrupt);
  EXPECT_EQ(chunk_item(as_bytes(chunk).first(10), 2, 1).error().code(), Code::kCorrupt);
  auto offsets = parse_chunk_table(as_bytes(chunk), 2, 21);
  ASSERT_TRUE(offsets.has_value());
  EXPECT_EQ(*offsets, (std::vector<std::uint64_t>{16, 18, 21}));
  EXPECT_EQ(parse_chunk_table(as_bytes(chunk), 2, 20).error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_chunk_table(as_bytes(chunk), 1, 21).error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_chunk_table(as_bytes(chunk).first(15), 2, 21).error().code(), Code::kCorrupt);
  chunk[4] = 15;
  EXPECT_EQ(parse_chunk_table(as_bytes(chunk), 2, 21).error().code(), Code::kCorrupt);
}

std::string framed_chunk() {
  std::string chunk("LDFZ01\0\0\1\0\0\0", 12);
  for (const std::uint64_t word : {3U, 2U, 2U}) append_u32(chunk, word);
  for (const std::uint64_t word : {0U, 5U, 9U, 9U}) append_u32(chunk, word);
  for (const std::uint64_t first : {0U, 2U}) {
    append_u32(chunk, first);
    append_u32(chunk, first == 0 ? 2 : 1);
    append_u64(chunk, first == 0 ? 88 : 98);
    append_u32(chunk, first == 0 ? 10 : 4);
    append_u32(chunk, first == 0 ? 9 : 0);
  }
  return chunk;
}

TEST(Framed, ReadsFramesThatFollowOneAnother) {
  const std::string chunk = framed_chunk();
  ASSERT_EQ(chunk.size(), 88U);
  auto head = parse_framed_head(as_bytes(chunk));
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->table_bytes(), 88U);
  auto tables = parse_framed_tables(as_bytes(chunk), 102);
  ASSERT_TRUE(tables.has_value()) << tables.error().message();
  EXPECT_EQ(tables->offsets, (std::vector<std::uint64_t>{0, 5, 9, 9}));
  ASSERT_EQ(tables->frames.size(), 2U);
  EXPECT_EQ(tables->frames[1].first_sample, 2U);
  EXPECT_EQ(tables->frames[1].raw_begin, 9U);
}

TEST(Framed, RefusesDamage) {
  const std::string chunk = framed_chunk();
  EXPECT_EQ(parse_framed_tables(as_bytes(chunk), 103).error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_framed_tables(as_bytes(chunk), 101).error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_framed_tables(as_bytes(chunk).first(87), 102).error().code(), Code::kCorrupt);
  for (const std::size_t at : {0U, 12U, 20U, 24U, 32U, 40U, 44U, 48U, 56U, 60U}) {
    std::string broken = chunk;
    broken[at] = static_cast<char>(broken[at] + 1);
    EXPECT_EQ(parse_framed_tables(as_bytes(broken), 102).error().code(), Code::kCorrupt) << at;
  }
  std::string newer = chunk;
  newer[8] = 2;
  EXPECT_EQ(parse_framed_head(as_bytes(newer)).error().code(), Code::kUnsupported);
}

TEST(ArrowFooter, IsFoundByItsMagic) {
  std::string footer;
  append_u32(footer, 100);
  footer += std::string("LDARW01\0", 8);
  const auto found = parse_arrow_footer(as_bytes(footer), 200);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->offset_bytes, 88U);
  EXPECT_FALSE(parse_arrow_footer(as_bytes(footer), 111).has_value());
  EXPECT_FALSE(parse_arrow_footer(as_bytes(footer).first(11), 200).has_value());
  footer[5] = 'x';
  EXPECT_FALSE(parse_arrow_footer(as_bytes(footer), 200).has_value());
}

// Made by the package cryptography (Fernet, PBKDF2HMAC) as litdata uses it.
constexpr std::string_view kSalt = "AAECAwQFBgcICQoLDA0ODw==";
constexpr std::string_view kToken =
    "gAAAAABlU_EAZGVmZ2hpamtsbW5vcHFyc8sFlb9KrrPJtC8_"
    "rYd7XJhIvEjLYwsIyAJ3iIsVmwRgzKKJc0GmQ0XYJ5CHO0W"
    "cOQ==";
constexpr std::string_view kEmptyToken =
    "gAAAAABlU_"
    "EAZGVmZ2hpamtsbW5vcHFycwwpnvgYW0iGKN6ISrK5rlEbHbKc4iWk2L8eYyE3d4uxLACio5ilV5MS5GvEIt8"
    "84g==";

TEST(Fernet, DecryptsTokensOfItsKeyOnly) {
  auto key = FernetKey::derive("open sesame", kSalt);
  ASSERT_TRUE(key.has_value());
  std::string token(kToken);
  std::vector<std::byte> out(token.size());
  const auto size = key->decrypt(as_bytes(token), out);
  ASSERT_TRUE(size.has_value());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(out.data()), *size), "hello, world");
  const std::string empty(kEmptyToken);
  EXPECT_EQ(key->decrypt(as_bytes(empty), out), std::optional<std::size_t>(0));
  for (std::size_t at = 0; at + 2 < token.size(); at += 7) {
    std::string broken = token;
    broken[at] = broken[at] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(key->decrypt(as_bytes(broken), out).has_value()) << at;
  }
  EXPECT_FALSE(key->decrypt(as_bytes(token).first(96), out).has_value());
  EXPECT_FALSE(key->decrypt({}, out).has_value());
  auto other = FernetKey::derive("open sesam", kSalt);
  ASSERT_TRUE(other.has_value());
  EXPECT_FALSE(other->decrypt(as_bytes(token), out).has_value());
  EXPECT_EQ(FernetKey::derive("x", "not base64!").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(FernetKey::derive("x", "").error().code(), Code::kInvalidArgument);
}

std::string index_json(const std::string& config, const std::string& chunks = "") {
  return R"({"chunks": [)" + chunks + R"(], "config": {"data_format": ["int"], )" + config + "}}";
}

TEST(LitDataIndex, RefusesByName) {
  const auto message = [](const std::string& json) {
    const auto index = parse_litdata_index(json);
    return index ? std::string("fine") : std::string(index.error().message());
  };
  EXPECT_EQ(message(index_json(R"("compression": null)")), "fine");
  EXPECT_EQ(message(index_json(R"("item_loader": "PyTreeLoader")")), "fine");
  EXPECT_NE(message(index_json(R"("compression": "lz4")")).find("lz4"), std::string::npos);
  EXPECT_NE(message(index_json(R"("item_loader": "ParquetLoader")")).find("table"),
            std::string::npos);
  EXPECT_NE(message(index_json(R"("item_loader": "Mine")")).find("Mine"), std::string::npos);
  EXPECT_NE(
      message(index_json(R"("encryption": {"algorithm": "rsa", "level": "sample"})")).find("rsa"),
      std::string::npos);
  EXPECT_NE(message(index_json(R"("compression": "zstd", "compression_level": "row")")).find("row"),
            std::string::npos);
  EXPECT_NE(message("{}").find("chunks"), std::string::npos);
  EXPECT_NE(message(R"({"chunks": []})").find("config"), std::string::npos);
}

TEST(LitDataIndex, ChecksChunks) {
  const auto code = [](const std::string& chunk) {
    const auto index = parse_litdata_index(index_json(R"("item_loader": null)", chunk));
    return index ? Code::kOk : index.error().code();
  };
  EXPECT_EQ(code(R"({"filename": "a.bin", "chunk_bytes": 24, "chunk_size": 4, "dim": null})"),
            Code::kOk);
  EXPECT_EQ(code(R"({"filename": "a.bin", "chunk_bytes": 24, "chunk_size": 5, "dim": null})"),
            Code::kCorrupt);
  EXPECT_EQ(code(R"({"filename": "../a.bin", "chunk_bytes": 24, "chunk_size": 4, "dim": null})"),
            Code::kCorrupt);
  EXPECT_EQ(code(R"({"filename": "a.bin", "chunk_bytes": 4294967296, "chunk_size": 4})"),
            Code::kCorrupt);
  EXPECT_EQ(code(R"({"filename": "a.bin", "chunk_size": 4})"), Code::kCorrupt);
}

TEST(LitDataLayout, ComesBack) {
  LitDataLayout layout;
  layout.kind = LitDataLayout::Kind::kRows;
  layout.encryption = ChunkEncryption::kItem;
  layout.schemas = {{std::string("\0\xff", 2), R"({"a": 1})"}};
  layout.schema_of_shard = {0, 0};
  auto again = parse_litdata_layout(format_litdata_layout(layout), 2);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(again->kind, layout.kind);
  EXPECT_EQ(again->encryption, layout.encryption);
  EXPECT_EQ(again->schemas[0].message, layout.schemas[0].message);
  EXPECT_EQ(again->schemas[0].spec, layout.schemas[0].spec);
  EXPECT_EQ(parse_litdata_layout(format_litdata_layout(layout), 3).error().code(), Code::kCorrupt);
  for (const char* text :
       {"", "{}", R"({"kind": "x", "encryption": ""})", R"({"kind": "tokens", "encryption": ""})",
        R"({"kind": "rows", "encryption": ""})"}) {
    EXPECT_EQ(parse_litdata_layout(text, 0).error().code(), Code::kCorrupt) << text;
  }
}

}  // namespace
}  // namespace headrace::detail
