#include <gtest/gtest.h>

#include <cstring>

#include "headrace/views.h"
#include "io/testing/fake_store.h"
#include "shard/dataset/build.h"
#include "shard/formats/numpy/npy_header.h"
#include "shard/formats/numpy/numpy_driver.h"
#include "shard/formats/numpy/row_layout.h"
#include "shard/formats/numpy/zip_directory.h"
#include "shard/testing/dataset_fixture.h"
#include "shard/testing/read_dataset.h"

namespace headrace {
namespace {

void append(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(i < 8 ? value >> (8 * i) : 0));
}

std::string npy(const std::string& dict, const std::string& data, unsigned version = 1) {
  std::string out("\x93NUMPY", 6);
  append(out, version, 2);
  append(out, dict.size(), version == 1 ? 2 : 4);
  return out + dict + data;
}
std::string dict_of(const std::string& descr, const std::string& shape,
                    const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

struct Member {
  std::string name, data;
  unsigned method = 0;
  unsigned flags = 0;
};
// A zip with an extra field of 4 bytes in each local header.
std::string zip(const std::vector<Member>& members, bool is_wide = false) {
  std::string out, directory;
  for (const Member& member : members) {
    const std::size_t offset = out.size(), size = member.data.size();
    append(out, 0x04034b50, 4);
    for (const unsigned field : {20U, member.flags, member.method, 0U, 0U}) append(out, field, 2);
    append(out, 0, 4);
    append(out, is_wide ? 0xffffffff : size, 4);
    append(out, is_wide ? 0xffffffff : size, 4);
    append(out, member.name.size(), 2);
    append(out, 4, 2);
    out += member.name + std::string("\xfe\xca\0\0", 4) + member.data;
    append(directory, 0x02014b50, 4);
    for (const unsigned field : {20U, 20U, member.flags, member.method, 0U, 0U})
      append(directory, field, 2);
    append(directory, 0, 4);
    append(directory, is_wide ? 0xffffffff : size, 4);
    append(directory, is_wide ? 0xffffffff : size, 4);
    append(directory, member.name.size(), 2);
    append(directory, is_wide ? 28 : 0, 2);
    append(directory, 0, 10);
    append(directory, is_wide ? 0xffffffff : offset, 4);
    directory += member.name;
    if (is_wide) {
      append(directory, 1, 2);
      append(directory, 24, 2);
      for (const std::size_t value : {size, size, offset}) append(directory, value, 8);
    }
  }
  const std::size_t offset = out.size();
  out += directory;
  if (is_wide) {
    const std::size_t record = out.size();
    append(out, 0x06064b50, 4);
    append(out, 44, 8);
    append(out, 0, 12);
    for (const std::size_t value : {members.size(), members.size(), directory.size(), offset})
      append(out, value, 8);
    append(out, 0x07064b50, 4);
    append(out, 0, 4);
    append(out, record, 8);
    append(out, 1, 4);
  }
  append(out, 0x06054b50, 4);
  append(out, 0, 4);
  append(out, is_wide ? 0xffff : members.size(), 2);
  append(out, is_wide ? 0xffff : members.size(), 2);
  append(out, is_wide ? 0xffffffff : directory.size(), 4);
  append(out, is_wide ? 0xffffffff : offset, 4);
  append(out, 7, 2);
  return out + "comment";
}

class Numpy : public testing::DatasetFixture {
 protected:
  Result<std::shared_ptr<const Dataset>> open(std::vector<std::string> columns = {}) {
    DatasetOptions options;
    options.format = Format::kNumpy;
    options.columns = std::move(columns);
    return DatasetFixture::open(options);
  }
  Code code(std::vector<std::string> columns = {}) { return code_of(open(std::move(columns))); }
};

TEST_F(Numpy, RowsOfTheFirstAxisAreSamples) {
  store_.set("a.npy", npy(dict_of("<u2", "(2, 3)"), "aabbccddeeff"));
  store_.set("b.npy", npy(dict_of("<u2", "(1, 3L)"), "AABBCC", 2));
  store_.set("c.npy", npy(dict_of("<u2", "(0, 3)"), "", 3));
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  const Column& column = (*dataset)->columns()[0];
  EXPECT_EQ(column.name, "data");
  EXPECT_EQ(column.dtype, "uint16");
  EXPECT_EQ(column.shape, std::vector<std::uint64_t>{3});
  EXPECT_EQ(values(**dataset), (std::vector<std::string>{"aabbcc", "ddeeff", "AABBCC"}));
}

TEST_F(Numpy, ReadsMoreFilesThanAtOnce) {
  for (const char* ending : {".npy", ".npz"}) {
    store_.shared().objects.clear();
    for (int i = 1000; i < 1600; ++i) {
      const std::string file = npy(dict_of("|u1", "(1, 4)"), std::to_string(i));
      const std::string key = std::to_string(i) + ending;
      store_.set(key, key.ends_with("z") ? zip({{"data.npy", file}}) : file);
    }
    auto dataset = open();
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    const std::vector<std::string> found = values(**dataset);
    ASSERT_EQ(found.size(), 600U);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], std::to_string(1000 + i));
  }
}

TEST_F(Numpy, ColumnsOfAZipAreItsMembers) {
  for (const bool is_wide : {false, true}) {
    store_.set("a.npz", zip({{"x.npy", npy(dict_of("<i4", "(3,)"), "aaaabbbbcccc")},
                             {"y.npy", npy(dict_of("|u1", "(3, 2)"), "112233")}},
                            is_wide));
    auto dataset = open();
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    EXPECT_EQ((*dataset)->columns()[1].name, "y");
    EXPECT_EQ(values(**dataset, 0), (std::vector<std::string>{"aaaa", "bbbb", "cccc"}));
    EXPECT_EQ(values(**dataset, 1), (std::vector<std::string>{"11", "22", "33"}));
    auto one = testing::read_one(store_, *pool_, **dataset, 1);
    ASSERT_TRUE(one.has_value());
    EXPECT_EQ((*one)[0].bytes, "bbbb");
    EXPECT_EQ((*one)[1].bytes, "22");
    auto only = open({"y"});
    ASSERT_TRUE(only.has_value()) << only.error().message();
    EXPECT_EQ(values(**only), (std::vector<std::string>{"11", "22", "33"}));
    EXPECT_EQ(code({"z"}), Code::kInvalidArgument);
  }
}

TEST_F(Numpy, RefusesZipsByMember) {
  const std::string x = npy(dict_of("|u1", "(3,)"), "123");
  store_.set("a.npz", zip({{"x.npy", x, 12}}));
  EXPECT_EQ(code(), Code::kUnsupported);
  EXPECT_NE(message_.find("savez"), std::string::npos);
  store_.set("a.npz", zip({{"x.npy", x, 8}}));
  EXPECT_EQ(code(), Code::kCorrupt) << "not deflated";
  store_.set("a.npz", zip({{"x.npy", x, 0, 1}}));
  EXPECT_EQ(code(), Code::kUnsupported);
  EXPECT_NE(message_.find("encrypted"), std::string::npos);
  store_.set("a.npz", zip({{"x.npy", x}, {"y.npy", npy(dict_of("|u1", "(2,)"), "12")}}));
  EXPECT_EQ(code(), Code::kUnsupported);
  EXPECT_EQ(code({"x"}), Code::kOk);
  store_.set("a.npz", zip({{"x.npy", x}, {"notes.txt", "hello"}}));
  EXPECT_EQ(code(), Code::kUnsupported);
  EXPECT_EQ(code({"x"}), Code::kOk);
  store_.set("a.npz", zip({{"x.npy", x + "4"}}));
  EXPECT_EQ(code(), Code::kCorrupt);
  std::string cut = zip({{"x.npy", x}});
  cut.resize(cut.size() - 8);
  store_.set("a.npz", cut);
  EXPECT_EQ(code(), Code::kCorrupt);
  store_.set("a.npz", zip({}));
  EXPECT_EQ(code(), Code::kUnsupported);
}

TEST_F(Numpy, RefusesFilesThatDiffer) {
  store_.set("a.npy", npy(dict_of("<u2", "(2,)"), "aabb"));
  store_.set("b.npy", npy(dict_of("<u2", "(2, 1)"), "aabb"));
  EXPECT_EQ(code(), Code::kUnsupported);
  store_.set("b.npy", npy(dict_of("<u2", "(2,)"), "aab"));
  EXPECT_EQ(code(), Code::kCorrupt);
  store_.set("b.npy", npy(dict_of("<u2", "(2,)"), "aabbcc"));
  EXPECT_EQ(code(), Code::kCorrupt);
  store_.shared().objects.erase("b.npy");
  store_.set("b.npz", zip({}));
  EXPECT_EQ(code(), Code::kInvalidArgument);
  store_.shared().objects.clear();
  store_.set("a.npz", zip({{"data.npy", npy(dict_of("<u2", "(2,)"), "aabb")}}));
  store_.set("b.npy", npy(dict_of("<u2", "(2,)"), "aabb"));
  EXPECT_EQ(code(), Code::kInvalidArgument);
  EXPECT_NE(message_.find("b.npy: is no .npz file, unlike a.npz"), std::string::npos) << message_;
}

TEST_F(Numpy, TheBytesOfFilesSayWhatTheyAreNotTheirNames) {
  const std::string array = npy(dict_of("|u1", "(3,)"), "123");
  for (const char* key : {"a", "a.npy", "a.npz"}) {
    SCOPED_TRACE(key);
    store_.shared().objects.clear();
    store_.set(key, array);
    auto plain = open();
    ASSERT_TRUE(plain.has_value()) << plain.error().message();
    EXPECT_EQ((*plain)->columns()[0].name, "data");
    EXPECT_EQ(values(**plain), (std::vector<std::string>{"1", "2", "3"}));
    store_.set(key, zip({{"x.npy", array}}));
    auto zipped = open();
    ASSERT_TRUE(zipped.has_value()) << zipped.error().message();
    EXPECT_EQ((*zipped)->columns()[0].name, "x");
    EXPECT_EQ(values(**zipped), (std::vector<std::string>{"1", "2", "3"}));
  }
}

TEST(NpyHeader, RefusesByName) {
  using detail::parse_npy_header;
  const auto refuse = [](const std::string& dict) {
    const std::string file = npy(dict, "");
    const auto header = parse_npy_header(std::as_bytes(std::span(file)));
    return header ? Code::kOk : header.error().code();
  };
  EXPECT_EQ(refuse(dict_of("<f8", "(1, 2)")), Code::kOk);
  EXPECT_EQ(refuse(dict_of("<f8", "(3,)", "True")), Code::kOk);
  EXPECT_EQ(refuse("{\"shape\":(3,),\"fortran_order\":False,\"descr\":\"=c16\"}"), Code::kOk);
  EXPECT_EQ(refuse(dict_of("<f8", "(3, 2)", "True")), Code::kUnsupported);
  for (const char* descr : {"|O", "<U5", "|S3", "<M8[s]", ">i4", "|V8", "<f16", "x", "<"})
    EXPECT_EQ(refuse(dict_of(descr, "(1,)")), Code::kUnsupported) << descr;
  EXPECT_EQ(refuse(dict_of(">i1", "(1,)")), Code::kOk);
  EXPECT_EQ(refuse("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}"),
            Code::kUnsupported);
  EXPECT_EQ(refuse(dict_of("<f8", "()")), Code::kUnsupported);
  EXPECT_EQ(refuse(dict_of("<f8", "(2, 0)")), Code::kUnsupported);
  EXPECT_EQ(refuse(dict_of("<f8", "(4294967296, 4294967296, 8)")), Code::kCorrupt);
  for (const char* dict : {"", "{", "{}", "()", "{'descr': '<f8'}",
                           "{'descr': '<f8', 'fortran_order': 0, 'shape': (1,)}",
                           "{'descr': '<f8', 'fortran_order': False, 'shape': (1, -2)}",
                           "{'descr': '<f8', 'fortran_order': False, 'shape': 3}",
                           "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)} + x",
                           "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'x': 1}",
                           "{'descr': '', 'fortran_order': False, 'shape': (1,)}",
                           "{'descr': '<f8 'fortran_order': False 'shape': (1,)}"}) {
    EXPECT_EQ(refuse(dict), Code::kCorrupt) << dict;
  }
  const std::string newer = npy("{}", "", 4);
  EXPECT_EQ(parse_npy_header(std::as_bytes(std::span(newer))).error().code(), Code::kUnsupported);
  const std::string cut = npy(dict_of("<f8", "(1,)"), "").substr(0, 40);
  EXPECT_EQ(parse_npy_header(std::as_bytes(std::span(cut))).error().code(), Code::kCorrupt);
}

TEST(LooksLikeNumpy, KnowsBothKinds) {
  const auto looks = [](const std::string& text) {
    return detail::looks_like_numpy(std::as_bytes(std::span(text)));
  };
  EXPECT_TRUE(looks(npy("{}", "")));
  EXPECT_TRUE(looks(zip({{"x.npy", "123"}})));
  EXPECT_FALSE(looks(zip({{"x.txt", "123"}})));
  EXPECT_FALSE(looks("PK\3\4"));
  EXPECT_FALSE(looks(""));
}

TEST_F(Numpy, ArePackedFromAZipOfSeveralColumns) {
  // Rows of 3 tokens, with a column before and one behind them.
  std::string tokens, ids;
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j < 3; ++j) append(tokens, static_cast<std::uint64_t>(3 * i + j), 2);
    append(ids, static_cast<std::uint64_t>(1000 + i), 4);
  }
  store_.set("a.npz", zip({{"a.npy", npy(dict_of("<u4", "(40,)"), ids)},
                           {"tokens.npy", npy(dict_of("<u2", "(40, 3)"), tokens)},
                           {"z.npy", npy(dict_of("<u4", "(40,)"), ids)}}));
  auto documents = open();
  ASSERT_TRUE(documents.has_value()) << documents.error().message();
  PackTokensOptions options;
  options.length = 4;
  options.method = PackMethod::kConcatenate;
  auto packed = pack_tokens(*documents, options);
  ASSERT_TRUE(packed.has_value()) << packed.error().message();
  ASSERT_EQ((*packed)->sample_count(), 30U);
  auto samples = testing::read_all(store_, *pool_, **packed);
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  for (std::uint64_t s = 0; s < 30; ++s) {
    std::string wanted;
    for (std::uint64_t i = 0; i < 4; ++i) append(wanted, 4 * s + i, 2);
    EXPECT_EQ((*samples)[s][0].bytes, wanted);
    auto alone = testing::read_one(store_, *pool_, **packed, s);
    ASSERT_TRUE(alone.has_value()) << alone.error().message();
    EXPECT_EQ((*alone)[0].bytes, wanted) << s;
  }
}

TEST_F(Numpy, RefuseRowsThatNoBlockHolds) {
  store_.set("a.npy", npy(dict_of("|u1", "(4294967296, 0)"), ""));
  EXPECT_NE(code(), Code::kOk);
  store_.set("a.npy", npy(dict_of("|u1", "(0, 4294967296)"), ""));
  EXPECT_EQ(code(), Code::kUnsupported);
  EXPECT_NE(message_.find("a.npy"), std::string::npos) << message_;
}

}  // namespace
}  // namespace headrace
