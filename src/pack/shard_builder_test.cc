// ShardBuilder on cells made by hand; whole formats are compared with their own packages in
// tests/python/test_writers.py.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <nlohmann/json.hpp>

#include "base/endian.h"
#include "headrace/pack.h"
#include "pack/cell_type.h"
#include "pack/pack_test_util.h"

namespace headrace {
namespace {

using pack_test::mds_samples;
using pack_test::tar_members;

ColumnBytes cell(std::string_view text) {
  ColumnBytes out;
  out.bytes = std::as_bytes(std::span(text.data(), text.size()));
  out.present = true;
  return out;
}

PackColumn column(const std::string& name, const std::string& encoding,
                  const std::string& dtype = {}, std::vector<std::uint64_t> shape = {}) {
  PackColumn out;
  out.source.name = out.name = name;
  out.source.encoding = encoding;
  out.source.dtype = dtype;
  out.source.shape = std::move(shape);
  return out;
}

std::string text_of(const BuiltShard& shard) {
  return {reinterpret_cast<const char*>(shard.bytes.data()), shard.bytes.size()};
}

std::unique_ptr<ShardBuilder> must_create(const ShardFormat& format) {
  auto builder = ShardBuilder::create(format);
  EXPECT_TRUE(builder) << builder.error().message();
  return *std::move(builder);
}

Code create_code(const std::string& format, std::vector<PackColumn> columns,
                 const std::string& compression = {}, const std::string& hash = {}) {
  ShardFormat spec;
  spec.format = format;
  spec.columns = std::move(columns);
  spec.compression = compression;
  spec.hash = hash;
  auto builder = ShardBuilder::create(spec);
  return builder ? Code::kOk : builder.error().code();
}

/// Code of writing one cell.
Code stage_code(const std::string& format, const PackColumn& column, const ColumnBytes& value) {
  ShardFormat spec;
  spec.format = format;
  spec.columns = {column};
  const auto builder = must_create(spec);
  const auto size = builder->stage({&value, 1}, 0);
  return size ? Code::kOk : size.error().code();
}

TEST(ShardBuilder, MdsIsTheGoldenShard) {
  ShardFormat spec;
  spec.columns = {column("x", "int", "int64"), column("t", "str")};
  const auto builder = must_create(spec);
  const std::string seven("\7\0\0\0\0\0\0\0", 8);
  const std::string minus_one(8, '\xff');
  for (const auto& [number, text] : {std::pair(seven, "hi"), std::pair(minus_one, "")}) {
    const std::vector<ColumnBytes> cells = {cell(number), cell(text)};
    ASSERT_TRUE(builder->stage(cells, 0));
    builder->commit();
  }
  EXPECT_EQ(builder->raw_bytes(), 223U);
  auto shard = builder->take();
  ASSERT_TRUE(shard);
  const std::string text = text_of(*shard);
  EXPECT_EQ(text.size(), 223U);
  EXPECT_EQ(mds_samples(text)[0], std::string("\2\0\0\0hi", 6) + seven);
  EXPECT_EQ(mds_samples(text)[1], std::string(4, '\0') + minus_one);
  EXPECT_EQ(builder->sample_count(), 0U) << "the next shard is empty";
}

TEST(ShardBuilder, StagedSampleWaitsForTheNextShard) {
  ShardFormat spec;
  spec.columns = {column("t", "str")};
  const auto builder = must_create(spec);
  const ColumnBytes first = cell("first");
  const ColumnBytes second = cell("second");
  ASSERT_TRUE(builder->stage({&first, 1}, 0));
  builder->commit();
  const std::uint64_t before = builder->raw_bytes();
  const auto with = builder->stage({&second, 1}, 1);
  ASSERT_TRUE(with);
  EXPECT_EQ(*with, before + 4 + 4 + 6);
  EXPECT_EQ(mds_samples(text_of(*builder->take())).size(), 1U);
  builder->commit();
  EXPECT_EQ(mds_samples(text_of(*builder->take()))[0].substr(4), "second");
}

TEST(ShardBuilder, TarMembersSayWhatTheyAre) {
  ShardFormat spec;
  spec.format = "webdataset";
  spec.columns = {column("n", "uint16", "uint16"), column("cls", "ascii:int"), column("t", "str"),
                  column("f", "float32", "float32"), column("jpg", "bytes")};
  const auto builder = must_create(spec);
  ColumnBytes absent;
  const std::string half("\0\0\0\x3f", 4);
  const std::vector<ColumnBytes> cells = {cell("\x2a\1"), cell("7"), cell("text"), cell(half),
                                          absent};
  ASSERT_TRUE(builder->stage(cells, 42));
  builder->commit();
  const std::vector<std::pair<std::string, std::string>> expected = {{"000000042.n.cls", "298"},
                                                                     {"000000042.cls", "7"},
                                                                     {"000000042.t.txt", "text"},
                                                                     {"000000042.f.txt", "0.5"}};
  EXPECT_EQ(tar_members(text_of(*builder->take())), expected);
}

TEST(ShardBuilder, TarKeysThatFollowEachOtherDiffer) {
  ShardFormat spec;
  spec.format = "webdataset";
  spec.columns = {column("__key__", "str"), column("t", "str")};
  const auto builder = must_create(spec);
  const std::vector<ColumnBytes> a = {cell("a"), cell("1")}, b = {cell("b"), cell("2")};
  ASSERT_TRUE(builder->stage(a, 0));
  ASSERT_TRUE(builder->stage(a, 0)) << "the first was never committed";
  builder->commit();
  const auto again = builder->stage(a, 1);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(builder->stage(b, 1));
  ASSERT_TRUE(builder->take());
  builder->commit();  // Begins the next shard.
  EXPECT_FALSE(builder->stage(b, 2));
  ASSERT_TRUE(builder->stage(a, 2));
  builder->commit();
  ASSERT_TRUE(builder->take());
  EXPECT_TRUE(builder->stage(a, 3)) << "another shard";
}

TEST(ShardBuilder, TarKeysStayInTheirFolder) {
  for (const auto& [key, code] : {std::pair("d/a", Code::kOk), std::pair("./a", Code::kOk),
                                  std::pair("../../evil", Code::kInvalidArgument),
                                  std::pair("/etc/evil", Code::kInvalidArgument),
                                  std::pair("d/../../evil", Code::kInvalidArgument)}) {
    ShardFormat spec;
    spec.format = "webdataset";
    spec.columns = {column("__key__", "str"), column("t", "str")};
    const std::vector<ColumnBytes> cells = {cell(key), cell("text")};
    const auto size = must_create(spec)->stage(cells, 0);
    EXPECT_EQ(size ? Code::kOk : size.error().code(), code) << key;
  }
}

TEST(ShardBuilder, TarKeysOfBytesNameSamplesToo) {
  ShardFormat spec;
  spec.format = "webdataset";
  spec.columns = {column("__key__", "bytes"), column("t", "str")};
  const auto builder = must_create(spec);
  const std::vector<ColumnBytes> cells = {cell("d/a"), cell("text")};
  for (const char* key : {"d/\xff", ""}) {
    const std::vector<ColumnBytes> bad = {cell(key), cell("text")};
    const auto refused = builder->stage(bad, 7);
    ASSERT_FALSE(refused) << key;
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_NE(refused.error().message().find("sample 7"), std::string::npos);
  }
  ASSERT_TRUE(builder->stage(cells, 0));
  builder->commit();
  const std::vector<std::pair<std::string, std::string>> expected = {{"d/a.t.txt", "text"}};
  EXPECT_EQ(tar_members(text_of(*builder->take())), expected);
}

TEST(ShardBuilder, TarColumnsCannotBeFieldsThatEverySampleHas) {
  ShardFormat spec;
  spec.format = "webdataset";
  for (const auto& taken : {column("__url__", "bytes"), column("__KEY__", "bytes")}) {
    spec.columns = {taken, column("t", "str")};
    const auto builder = ShardBuilder::create(spec);
    ASSERT_FALSE(builder) << taken.name;
    EXPECT_EQ(builder.error().code(), Code::kInvalidArgument);
  }
}

TEST(ShardBuilder, TarMembersMayHaveNamesOfTheirOwn) {
  ShardFormat spec;
  spec.format = "webdataset";
  spec.columns = {column("__file__", "str"), column("data", "bytes")};
  const auto builder = must_create(spec);
  const std::vector<ColumnBytes> cells = {cell("d/a.seg.png"), cell("pixels")};
  ASSERT_TRUE(builder->stage(cells, 0));
  builder->commit();
  // A file of the same sample; what was staged and not committed leaves nothing behind.
  const std::vector<ColumnBytes> more = {cell("d/a.txt"), cell("text")};
  ASSERT_TRUE(builder->stage(more, 1));
  ASSERT_TRUE(builder->stage(more, 1));
  builder->commit();
  for (const char* name : {"d/a.seg.png", "d/a.txt", "Makefile", "../b.txt"}) {
    const std::vector<ColumnBytes> bad = {cell(name), cell("x")};
    const auto size = builder->stage(bad, 1);
    ASSERT_FALSE(size) << name;
    EXPECT_EQ(size.error().code(), Code::kInvalidArgument);
  }
  const std::vector<std::pair<std::string, std::string>> expected = {{"d/a.seg.png", "pixels"},
                                                                     {"d/a.txt", "text"}};
  EXPECT_EQ(tar_members(text_of(*builder->take())), expected);
  spec.columns.push_back(column("__key__", "str"));
  EXPECT_EQ(ShardBuilder::create(spec).error().code(), Code::kInvalidArgument);
}

TEST(ShardBuilder, FurtherColumnsStandBesideTheFirstFileOfASample) {
  ShardFormat spec;
  spec.format = "webdataset";
  spec.columns = {column("__file__", "str"), column("data", "bytes"), column("cls", "ascii:int")};
  const auto builder = must_create(spec);
  for (const char* name : {"d/a.jpg", "d/a.json", "e/a.jpg"}) {
    const std::vector<ColumnBytes> cells = {cell(name), cell("x"), cell("7")};
    ASSERT_TRUE(builder->stage(cells, 0)) << name;
    builder->commit();
  }
  const std::vector<ColumnBytes> taken = {cell("e/a.CLS"), cell("x"), cell("7")};
  EXPECT_EQ(builder->stage(taken, 3).error().code(), Code::kInvalidArgument);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"d/a.jpg", "x"}, {"d/a.cls", "7"}, {"d/a.json", "x"}, {"e/a.jpg", "x"}, {"e/a.cls", "7"}};
  auto shard = builder->take();
  ASSERT_TRUE(shard);
  EXPECT_EQ(tar_members(text_of(*shard)), expected);
  EXPECT_EQ(shard->sample_count, 2U) << "as readers count";
  EXPECT_EQ(builder->sample_count(), 0U);
}

TEST(ShardBuilder, CompressedShardsInflateToTheRawOnes) {
  for (const auto& [format, compression] :
       {std::pair("mds", "zstd:5"), std::pair("tfrecord", "gzip")}) {
    ShardFormat spec;
    spec.format = format;
    spec.columns = {column("t", "str")};
    const ColumnBytes value = cell("the same text, the same text");
    const auto build = [&](const char* how) {
      spec.compression = how;
      const auto builder = must_create(spec);
      EXPECT_TRUE(builder->stage({&value, 1}, 0));
      builder->commit();
      return *builder->take();
    };
    const std::string raw = text_of(build(""));
    const BuiltShard zipped = build(compression);
    std::string out(zipped.raw_bytes, '\0');
    if (spec.format == "mds") {
      const std::size_t length =
          ZSTD_decompress(out.data(), out.size(), zipped.bytes.data(), zipped.bytes.size());
      EXPECT_EQ(length, zipped.raw_bytes);
      continue;  // The configuration inside says how it is compressed, so the bytes differ.
    }
    z_stream stream{};
    ASSERT_EQ(inflateInit2(&stream, 31), Z_OK);
    auto copy = zipped.bytes;
    stream.next_in = reinterpret_cast<Bytef*>(copy.data());
    stream.avail_in = static_cast<uInt>(copy.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
    inflateEnd(&stream);
    EXPECT_EQ(out, raw);
  }
}

TEST(ShardBuilder, RefusesWhatItCannotWrite) {
  const PackColumn text = column("t", "str");
  EXPECT_EQ(create_code("zip", {text}), Code::kUnsupported);
  EXPECT_EQ(create_code("mds", {}), Code::kInvalidArgument);
  EXPECT_EQ(create_code("mds", {text, text}), Code::kInvalidArgument);
  EXPECT_EQ(create_code("mds", {column("t", "list[bytes]")}), Code::kUnsupported);
  EXPECT_EQ(create_code("mds", {column("t", "complex64", "complex64")}), Code::kUnsupported);
  EXPECT_EQ(create_code("mds", {text}, "gzip"), Code::kUnsupported);
  EXPECT_EQ(create_code("mds", {text}, "zstd:23"), Code::kInvalidArgument);
  EXPECT_EQ(create_code("tfrecord", {text}, "zstd"), Code::kUnsupported);
  EXPECT_EQ(create_code("mds", {text}, "", "md4"), Code::kUnsupported);
  EXPECT_EQ(create_code("litdata", {text}, "", "sha1"), Code::kUnsupported);
  PackColumn nothing = column("a", "ndarray:int32:2,0", "int32");
  nothing.source.shape = {2, 0};
  EXPECT_EQ(create_code("mds", {nothing}), Code::kInvalidArgument);
  EXPECT_EQ(create_code("webdataset", {column("a/b", "bytes")}), Code::kInvalidArgument);
  EXPECT_EQ(create_code("webdataset", {column("X", "bytes"), column("x", "bytes")}),
            Code::kInvalidArgument);
}

TEST(ShardBuilder, RefusesValuesThatDoNotFit) {
  const PackColumn u64 = column("n", "uint64", "uint64");
  const std::string large(8, '\xff');
  EXPECT_EQ(stage_code("tfrecord", u64, cell(large)), Code::kUnsupported);
  EXPECT_EQ(stage_code("litdata", u64, cell(large)), Code::kUnsupported);
  EXPECT_EQ(stage_code("webdataset", u64, cell(large)), Code::kOk);
  EXPECT_EQ(stage_code("webdataset", u64, cell("1234")), Code::kCorrupt);
  EXPECT_EQ(stage_code("mds", u64, cell("1234")), Code::kInvalidArgument);
  EXPECT_EQ(stage_code("mds", u64, ColumnBytes{}), Code::kInvalidArgument);
  EXPECT_EQ(stage_code("litdata", u64, ColumnBytes{}), Code::kInvalidArgument);
  EXPECT_EQ(stage_code("webdataset", u64, ColumnBytes{}), Code::kInvalidArgument);
  EXPECT_EQ(stage_code("mds", column("n", "ascii:int"), cell(" 12\n")), Code::kOk);
  EXPECT_EQ(stage_code("mds", column("n", "ascii:int"), cell("12x")), Code::kCorrupt);
  EXPECT_EQ(stage_code("tfrecord", column("n", "float64", "float64"), cell(large)),
            Code::kUnsupported);
  EXPECT_EQ(stage_code("mds", column("n", "array:int16"), cell("")), Code::kInvalidArgument);
}

TEST(ShardBuilder, TextIsUtf8WhereReadersDecodeIt) {
  for (const std::string_view format : {"mds", "litdata", "webdataset", "tfrecord"}) {
    const bool is_unpacked = format == "mds" || format == "litdata";
    const Code code = is_unpacked ? Code::kInvalidArgument : Code::kOk;
    EXPECT_EQ(stage_code(std::string(format), column("t", "str"), cell("\xff")), code) << format;
    EXPECT_EQ(stage_code(std::string(format), column("t", "str"), cell("\xc3\xa4")), Code::kOk);
    EXPECT_EQ(stage_code(std::string(format), column("t", "bytes"), cell("\xff")), Code::kOk);
  }
}

TEST(ShardBuilder, JsonIsJsonWhereReadersDecodeIt) {
  for (const std::string format : {"mds", "litdata", "webdataset", "tfrecord"}) {
    const bool has_text = format == "mds" || format == "litdata";
    const Code bad_text = has_text ? Code::kInvalidArgument : Code::kOk;
    const Code bad_json = format == "mds" ? Code::kInvalidArgument : Code::kOk;
    EXPECT_EQ(stage_code(format, column("j", "json"), cell("{\"a\": 1}")), Code::kOk) << format;
    EXPECT_EQ(stage_code(format, column("j", "json"), cell("{broken")), bad_json) << format;
    EXPECT_EQ(stage_code(format, column("j", "json"), cell("")), bad_json) << format;
    EXPECT_EQ(stage_code(format, column("j", "json"), cell("\"\xff\"")), bad_text) << format;
    EXPECT_EQ(stage_code(format, column("j", "bytes"), cell("{broken")), Code::kOk) << format;
  }
}

TEST(ShardBuilder, EmptyArraysAreWrittenWhereTheFormatHasThem) {
  const std::string empty("\4\0", 2);  // One dimension of 0.
  for (const std::string format : {"mds", "litdata", "webdataset", "tfrecord"}) {
    const Code code = format == "mds" ? Code::kInvalidArgument : Code::kOk;
    EXPECT_EQ(stage_code(format, column("x", "ndarray:int32"), cell(empty)), code) << format;
    EXPECT_EQ(stage_code(format, column("x", "ndarray"), cell("\x21" + empty)), code) << format;
  }
}

TEST(CellType, HostileArraysAreCorrupt) {
  Column source;
  source.encoding = "ndarray";
  auto type = pack_detail::cell_type_of(source);
  ASSERT_TRUE(type);
  const std::vector<std::string> bad = {
      "",
      "\x11",
      std::string("\x11\xff", 2),
      "\7\4\1x",
      std::string("\x11\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 18),
      "\x11\4\2abc"};
  for (const std::string& bytes : bad) {
    auto view = type->array_of(std::as_bytes(std::span(bytes.data(), bytes.size())));
    ASSERT_FALSE(view);
    EXPECT_EQ(view.error().code(), Code::kCorrupt);
  }
  const std::string good("\x11\4\2abcd", 7);
  auto view = type->array_of(std::as_bytes(std::span(good.data(), good.size())));
  ASSERT_TRUE(view);
  EXPECT_EQ(view->shape, std::vector<std::uint64_t>{2});
}

}  // namespace
}  // namespace headrace
