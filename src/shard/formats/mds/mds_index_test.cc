#include "shard/formats/mds/mds_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "shard/formats/mds/mds_encoding.h"
#include "shard/testing/make_mds.h"

namespace headrace::detail {
namespace {

using nlohmann::json;

json index_json(std::function<void(json&)> edit = nullptr) {
  json entry = testing::mds_shard_entry("shard.00000.mds", 1000, 10);
  if (edit) edit(entry);
  return {{"version", 2}, {"shards", json::array({entry})}};
}

Code code_of(const json& index, std::string* message = nullptr) {
  auto parsed = parse_mds_index(index.dump(), false);
  if (!parsed && message != nullptr) *message = parsed.error().message();
  return parsed ? Code::kOk : parsed.error().code();
}

TEST(MdsIndexJson, GivesColumnsAndShards) {
  auto parsed =
      parse_mds_index(index_json([](json& e) {
                        e["hashes"] = {"sha1", "odd"};
                        e["raw_data"]["hashes"] = {{"sha1", "aa"}, {"odd", "bb"}, {"xxh64", "cc"}};
                        e["raw_data"]["basename"] = "part/0/shard.mds";
                      }).dump(),
                      false);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  ASSERT_EQ(parsed->columns.size(), 2U);
  EXPECT_EQ(parsed->columns[0].fixed_size_bytes, 0U);
  EXPECT_EQ(parsed->columns[1].dtype, "int64");
  ASSERT_EQ(parsed->shards.size(), 1U);
  EXPECT_EQ(parsed->shards[0].basename, "part/0/shard.mds");
  EXPECT_EQ(parsed->shards[0].raw_bytes, 1000U);
  EXPECT_EQ(parsed->shards[0].hashes, "sha1=aa xxh64=cc");
}

TEST(MdsIndexJson, TakesTheZipFileOfACompressedShard) {
  auto parsed = parse_mds_index(
      index_json([](json& e) {
        e["compression"] = "zstd:3";
        e["zip_data"] = {{"basename", "s.mds.zstd"}, {"bytes", 77}, {"hashes", json::object()}};
      }).dump(),
      false);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->shards[0].compression, Compression::kZstd);
  EXPECT_EQ(parsed->shards[0].basename, "s.mds.zstd");
  EXPECT_EQ(parsed->shards[0].stored_bytes, 77U);
  EXPECT_EQ(parsed->shards[0].raw_bytes, 1000U);
}

TEST(MdsIndexJson, RefusesTwoShardsInOneFile) {
  json index = index_json();
  for (const char* name : {"a/shard.00000.mds", "b/shard.00000.mds", "shard.00000.mds"}) {
    index["shards"].push_back(index["shards"][0]);
    index["shards"].back()["raw_data"]["basename"] = name;
  }
  std::string message;
  EXPECT_EQ(code_of(index, &message), Code::kCorrupt);
  EXPECT_THAT(message, ::testing::HasSubstr("shard 0 and shard 3"));
  EXPECT_THAT(message, ::testing::HasSubstr("the file shard.00000.mds"));
  // As merge_index writes them: the same name in several folders.
  index["shards"].erase(3);
  EXPECT_EQ(code_of(index), Code::kOk);
  // Of a compressed shard the file that is stored counts.
  index["shards"][0]["zip_data"] = {{"basename", "a/shard.00000.mds"}, {"bytes", 77}};
  index["shards"][0]["compression"] = "zstd";
  EXPECT_EQ(code_of(index), Code::kCorrupt);
}

TEST(MdsIndexJson, RefusesWhatCannotBe) {
  const std::function<void(json&)> edits[] = {
      [](json& e) { e.erase("version"); },
      [](json& e) { e.erase("format"); },
      [](json& e) { e.erase("samples"); },
      [](json& e) { e.erase("raw_data"); },
      [](json& e) { e.erase("column_sizes"); },
      [](json& e) { e["samples"] = -1; },
      [](json& e) { e["samples"] = 249; },  // 4 bytes an offset do not fit 1000 bytes.
      [](json& e) { e["raw_data"]["bytes"] = std::uint64_t{1} << 32; },
      [](json& e) { e["raw_data"]["bytes"] = 7; },
      [](json& e) { e["raw_data"]["basename"] = "../other/shard.mds"; },
      [](json& e) { e["raw_data"]["basename"] = "a/../../shard.mds"; },
      [](json& e) { e["raw_data"]["basename"] = "/etc/passwd"; },
      [](json& e) { e["raw_data"]["basename"] = ""; },
      [](json& e) { e["raw_data"]["basename"] = 5; },
      [](json& e) { e["column_names"] = {"t"}; },
      [](json& e) {
        e["column_sizes"] = {nullptr, 4};
      },  // int has 8.
      [](json& e) {
        e["column_sizes"] = {nullptr, nullptr};
      },
      [](json& e) {
        e["column_sizes"] = {std::uint64_t{1} << 40, 8};
      },
      [](json& e) {
        e["column_encodings"] = {"ndarray:uint8:0", "int"};
      },
      [](json& e) {
        e["column_encodings"] = {"ndarray:uint8:4294967295,4294967295", "int"};
      },
      [](json& e) {
        e["zip_data"] = {{"basename", "s"}, {"bytes", 5}};
      },
  };
  for (std::size_t i = 0; i < std::size(edits); ++i) {
    std::string message;
    EXPECT_EQ(code_of(index_json(edits[i]), &message), Code::kCorrupt) << i;
    EXPECT_NE(message.find("shard 0"), std::string::npos) << message;
  }
  EXPECT_EQ(parse_mds_index("", false).error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_mds_index("{", false).error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_mds_index("[]", false).error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_mds_index(R"({"version": 2})", false).error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_mds_index(std::string(5000, '[') + std::string(5000, ']'), false).error().code(),
            Code::kCorrupt);
}

TEST(MdsIndexJson, NamesWhatIsUnsupported) {
  std::string message;
  EXPECT_EQ(code_of({{"version", 1}, {"shards", json::array()}}), Code::kUnsupported);
  EXPECT_EQ(code_of(index_json([](json& e) { e["version"] = 1; })), Code::kUnsupported);
  EXPECT_EQ(code_of(index_json([](json& e) { e["format"] = "home"; }), &message),
            Code::kUnsupported);
  EXPECT_NE(message.find("home"), std::string::npos);
  json two = index_json();
  two["shards"].push_back(two["shards"][0]);
  two["shards"][1]["raw_data"]["basename"] = "shard.00001.mds";
  EXPECT_EQ(code_of(two), Code::kOk);
  two["shards"][1]["column_names"] = {"u", "x"};
  EXPECT_EQ(code_of(two), Code::kUnsupported);
}

json split_json(const std::function<void(json&)>& edit = {}) {
  json entry = json::parse(R"({"columns": {"b": "str", "a": "int"}, "compression": "br",
      "format": "json", "hashes": ["sha1"], "newline": "\n", "samples": 3, "version": 2,
      "raw_data": {"basename": "s.json", "bytes": 90, "hashes": {}},
      "raw_meta": {"basename": "s.json.meta", "bytes": 60, "hashes": {}},
      "zip_data": {"basename": "p/s.json.br", "bytes": 40, "hashes": {"sha1": "ab"}},
      "zip_meta": {"basename": "p/s.json.meta.br", "bytes": 30, "hashes": {}}})");
  if (edit) edit(entry);
  return {{"version", 2}, {"shards", json::array({entry})}};
}

TEST(MdsIndexJson, ReadsSplitShards) {
  auto index = parse_mds_index(split_json().dump(), false);
  ASSERT_TRUE(index.has_value()) << index.error().message();
  EXPECT_EQ(index->split.kind, MdsSplit::Kind::kJson);
  EXPECT_EQ(index->split.newline, "\n");
  ASSERT_EQ(index->columns.size(), 2U);
  EXPECT_EQ(index->columns[0].name, "a");
  EXPECT_EQ(index->columns[0].encoding, "str_int");
  const MdsShard& shard = index->shards[0];
  EXPECT_EQ(shard.basename, "p/s.json.br");
  EXPECT_EQ(shard.meta.basename, "p/s.json.meta.br");
  EXPECT_EQ(shard.meta.stored_bytes, 30U);
  EXPECT_EQ(shard.meta.raw_bytes, 60U);
  EXPECT_EQ(shard.compression, Compression::kBrotli);
  EXPECT_EQ(shard.hashes, "sha1=ab");
  auto back = parse_mds_layout(layout_of(index->split));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(*back, index->split);
  EXPECT_EQ(parse_mds_layout("{}").error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_mds_layout("{").error().code(), Code::kCorrupt);
}

TEST(MdsIndexJson, RefusesBrokenSplitShards) {
  const std::function<void(json&)> edits[] = {[](json& e) { e.erase("raw_meta"); },
                                              [](json& e) { e.erase("zip_meta"); },
                                              [](json& e) { e.erase("newline"); },
                                              [](json& e) { e["newline"] = ""; },
                                              [](json& e) { e["zip_meta"]["basename"] = "../x"; },
                                              [](json& e) { e["raw_meta"]["bytes"] = 19; },
                                              [](json& e) { e["raw_meta"]["bytes"] = 1ULL << 32; },
                                              [](json& e) { e["samples"] = 14; },
                                              [](json& e) { e["columns"] = 3; },
                                              [](json& e) { e["format"] = "csv"; },
                                              [](json& e) { e["format"] = "xsv"; }};
  for (std::size_t i = 0; i < std::size(edits); ++i)
    EXPECT_EQ(code_of(split_json(edits[i])), Code::kCorrupt) << i;
  EXPECT_EQ(code_of(split_json([](json& e) { e["compression"] = "lz4"; })), Code::kUnsupported);
  EXPECT_EQ(code_of(split_json([](json& e) { e["columns"]["a"] = "json"; })), Code::kUnsupported);
}

// The shards of a text that comes in pieces of `size`.
Result<MdsIndex> in_pieces(const std::string& text, std::size_t size) {
  MdsIndexStream stream(false);
  for (std::size_t at = 0; at < text.size(); at += size)
    HEADRACE_TRY(stream.feed(std::string_view(text).substr(at, size)));
  return stream.finish();
}

TEST(MdsIndexStream, ReadsPiecesOfAnySize) {
  json index = index_json();
  for (int i = 1; i < 5; ++i) {
    index["shards"].push_back(index["shards"][0]);
    index["shards"][static_cast<std::size_t>(i)]["raw_data"]["basename"] =
        "a\"]},{\\[" + std::to_string(i);
  }
  index["after"] = {{"shards", {1, 2}}};
  index["a \"shards\""] = "\\";
  for (const int indent : {-1, 2}) {
    const std::string text = index.dump(indent);
    for (const std::size_t size : {1U, 2U, 7U, 100U, 1U << 20}) {
      auto read = in_pieces(text, size);
      ASSERT_TRUE(read.has_value()) << read.error().message();
      ASSERT_EQ(read->shards.size(), 5U);
      EXPECT_EQ(read->shards[4].basename, "a\"]},{\\[4");
    }
    for (std::size_t cut = 0; cut + 1 < text.size(); cut += 13)
      EXPECT_FALSE(in_pieces(text.substr(0, cut), 64).has_value()) << cut;
  }
}

TEST(MdsIndexStream, TakesTheKeysInAnyOrder) {
  const std::string entry = index_json()["shards"][0].dump();
  for (const std::string& text : {"{\"shards\": [" + entry + "], \"version\": 2}",
                                  "{\"version\": 2, \"shards\": [" + entry + "]}"}) {
    auto read = in_pieces(text, 50);
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(read->shards.size(), 1U);
  }
  for (const std::string& text : std::initializer_list<std::string>{
           "{\"shards\": [" + entry + "], \"shards\": [], \"version\": 2}",
           "{\"shards\": [" + entry + ",], \"version\": 2}", "{\"shards\": [,], \"version\": 2}",
           "{\"x\": {\"shards\": [" + entry + "]}, \"version\": 2}", std::string("}{"),
           std::string(100, ']')}) {
    auto read = in_pieces(text, 50);
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_EQ(read.error().code(), Code::kCorrupt);
  }
}

TEST(MdsIndexStream, HoldsNoEntryBeyondItsBound) {
  MdsIndexStream stream(false);
  ASSERT_TRUE(stream.feed("{\"shards\": [{\"x\": \"").ok());
  const std::string piece(1 << 20, 'y');
  Status status;
  for (int i = 0; i < 8 && status.ok(); ++i) status = stream.feed(piece);
  EXPECT_EQ(status.code(), Code::kUnsupported);
}

TEST(MdsColumns, HaveDtypeAndShapeWhenEveryValueHas) {
  struct Case {
    const char* encoding;
    std::uint64_t size;
    const char* dtype;
    std::vector<std::uint64_t> shape;
  };
  const Case cases[] = {{"int", 8, "int64", {}},
                        {"float16", 2, "float16", {}},
                        {"ndarray:uint16:1025", 2050, "uint16", {1025}},
                        {"ndarray:float64:2,3", 48, "float64", {2, 3}},
                        {"ndarray:uint8", 0, "", {}},
                        {"ndarray", 0, "", {}},
                        {"jpeg", 0, "", {}},
                        {"home_made", 12, "", {}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.encoding);
    Column column;
    column.encoding = c.encoding;
    column.fixed_size_bytes = c.size;
    ASSERT_TRUE(describe_mds_column(column, false).ok());
    EXPECT_EQ(column.dtype, c.dtype);
    EXPECT_EQ(column.shape, c.shape);
  }
}

}  // namespace
}  // namespace headrace::detail
