#include <gtest/gtest.h>

#include <cstring>

#include "base/temporary_directory.h"
#include "io/testing/fake_store.h"
#include "shard/formats/tokens/idx_layout.h"
#include "shard/formats/tokens/megatron.h"
#include "shard/testing/dataset_fixture.h"
#include "shard/testing/read_dataset.h"

namespace headrace {
namespace {

template <class T>
void append(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

// As _IndexWriter of Megatron writes it; dtype code 8 is uint16.
std::string make_idx(const std::vector<std::int32_t>& lengths,
                     const std::vector<std::int64_t>& documents, std::uint8_t code = 8,
                     std::int64_t token_bytes = 2) {
  std::string idx("MMIDIDX\0\0", 9);
  append<std::uint64_t>(idx, 1);
  append(idx, code);
  append<std::uint64_t>(idx, lengths.size());
  append<std::uint64_t>(idx, documents.size());
  for (const std::int32_t length : lengths) append(idx, length);
  std::int64_t at = 0;
  for (const std::int32_t length : lengths) {
    append(idx, at);
    at += length * token_bytes;
  }
  for (const std::int64_t document : documents) append(idx, document);
  return idx;
}

class Tokens : public testing::DatasetFixture {
 protected:
  Result<std::shared_ptr<const Dataset>> open(std::uint64_t per_sample, std::string dtype = "") {
    DatasetOptions options;
    options.format = Format::kTokens;
    options.tokens_per_sample = per_sample;
    options.token_dtype = std::move(dtype);
    return DatasetFixture::open(options);
  }
  Code code(std::uint64_t per_sample, std::string dtype = "") {
    return code_of(open(per_sample, std::move(dtype)));
  }
};

TEST_F(Tokens, AreCutInBlocksOfEachFile) {
  store_.set("a.bin", "aabbccddee");
  store_.set("b.bin", "AABB");
  auto dataset = open(2);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->columns()[0].name, "tokens");
  EXPECT_EQ((*dataset)->columns()[0].encoding, "array:uint16");
  EXPECT_EQ((*dataset)->columns()[0].shape, std::vector<std::uint64_t>{2});
  // "ee" is shorter than a sample.
  EXPECT_EQ(values(**dataset), (std::vector<std::string>{"aabb", "ccdd", "AABB"}));
  auto wide = open(1, "uint32");
  ASSERT_FALSE(wide.has_value());  // 10 bytes.
  EXPECT_EQ(wide.error().code(), Code::kCorrupt);
}

TEST_F(Tokens, OfFlatFilesAskForTheirLength) {
  store_.set("a.bin", "aabb");
  EXPECT_EQ(code(0), Code::kInvalidArgument);
  EXPECT_NE(message_.find("tokens_per_sample"), std::string::npos);
  EXPECT_EQ(code(1, "text"), Code::kInvalidArgument);
  EXPECT_NE(message_.find("token_dtype"), std::string::npos);
  EXPECT_EQ(code(std::uint64_t{1} << 32), Code::kInvalidArgument);
}

TEST_F(Tokens, OfMegatronAreDocuments) {
  store_.set("d.bin", "aabbccddee");
  store_.set("d.idx", make_idx({1, 2, 2}, {0, 2, 3}));
  auto dataset = open(0);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->columns()[0].fixed_size_bytes, 0U);
  EXPECT_EQ(values(**dataset), (std::vector<std::string>{"aabbcc", "ddee"}));
  auto blocks = open(2);
  ASSERT_TRUE(blocks.has_value()) << blocks.error().message();
  EXPECT_EQ(values(**blocks), (std::vector<std::string>{"aabb", "ccdd"}));
}

TEST_F(Tokens, OfMegatronAreSequencesWhereDocumentsLeaveSomeOut) {
  store_.set("d.bin", "aabbccddee");
  for (const auto& documents : {std::vector<std::int64_t>{}, std::vector<std::int64_t>{0},
                                std::vector<std::int64_t>{0, 2}}) {
    store_.set("d.idx", make_idx({1, 0, 4}, documents));
    auto dataset = open(0);
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    EXPECT_EQ(values(**dataset), (std::vector<std::string>{"aa", "", "bbccddee"}));
  }
}

TEST_F(Tokens, RefuseABrokenIndex) {
  store_.set("d.bin", "aabbccddee");
  const std::string good = make_idx({1, 4}, {0, 1, 2});
  const auto with = [&](std::size_t at, char value) {
    std::string idx = good;
    idx[at] = value;
    return idx;
  };
  for (const std::string& idx :
       {with(0, 'X'), with(17, 9), with(17, 0), with(18, 3), with(25, 1), with(33, 1), with(34, 2),
        with(37, '\x80'), with(42, 1), with(50, 4), with(66, 3), good.substr(0, good.size() - 1),
        std::string(), make_idx({1, 3}, {0, 2}), make_idx({1, 5}, {0, 2}),
        make_idx({1, 4}, {0, 2}, 4)}) {
    store_.set("d.idx", idx);
    EXPECT_EQ(code(0), Code::kCorrupt);
  }
  store_.set("d.idx", with(9, 2));
  EXPECT_EQ(code(0), Code::kUnsupported);
  store_.set("d.idx", std::string("TNTIDX\0\0", 8) + std::string(40, '\0'));
  EXPECT_EQ(code(0), Code::kUnsupported);
  EXPECT_NE(message_.find("fairseq"), std::string::npos);
}

TEST_F(Tokens, OfMegatronAreReadFromManyIndexesAtOnce) {
  for (int i = 100; i < 300; ++i) {
    const std::string key = std::to_string(i);
    store_.set(key + ".bin", key.substr(0, 2) + key + "x");
    store_.set(key + ".idx", make_idx({1, 2}, {0, 1, 2}));
  }
  // One that is not small: a table of documents with empty ones.
  std::vector<std::int64_t> documents(200'000, 0);
  documents.push_back(2);
  store_.set("250.idx", make_idx({1, 2}, documents));
  auto dataset = open(0);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_GT(store_.shared().most_in_flight, 10U);
  ASSERT_EQ((*dataset)->sample_count(), 2U * 199 + 200'000);
  auto first = testing::read_one(store_, *pool_, **dataset, 0);
  ASSERT_TRUE(first.has_value()) << first.error().message();
  EXPECT_EQ((*first)[0].bytes, "10");
  auto last = testing::read_one(store_, *pool_, **dataset, (*dataset)->sample_count() - 1);
  ASSERT_TRUE(last.has_value()) << last.error().message();
  EXPECT_EQ((*last)[0].bytes, "299x");
}

TEST_F(Tokens, OfMegatronNeedAnIndexForEachFile) {
  store_.set("a.bin", "aabb");
  store_.set("a.idx", make_idx({2}, {0, 1}));
  store_.set("b.bin", "aabb");
  EXPECT_EQ(code(0), Code::kNotFound);
  store_.set("b.idx", make_idx({1}, {0, 1}, 4, 4));
  EXPECT_EQ(code(0), Code::kUnsupported);  // int32 after uint16.
  store_.set("b.idx", make_idx({2}, {0, 1}));
  EXPECT_EQ(code(0), Code::kOk);
}

TEST_F(Tokens, AreStaleWhenAnIndexOfTheirsChanges) {
  store_.set("a.bin", "aabb");
  store_.set("a.idx", make_idx({2}, {0, 1}));
  store_.set("b.bin", "ccdd");
  store_.set("b.idx", make_idx({2}, {0, 1}));
  DatasetOptions options;
  options.format = Format::kTokens;
  auto index = build_index(store_, *pool_, options);
  ASSERT_TRUE(index.has_value());
  store_.set("index.hri", *index);
  auto before = open(0);
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ((*before)->sample_count(), 2U);
  store_.set("b.idx", make_idx({1, 1}, {0, 1, 2}));
  auto after = open(0);
  ASSERT_TRUE(after.has_value()) << after.error().message();
  EXPECT_EQ((*after)->sample_count(), 3U);
  EXPECT_NE((*after)->fingerprint(), (*before)->fingerprint());
  store_.set("b.idx", make_idx({1, 1}, {0, 1, 2}));  // Another version of as many samples.
  auto same = open(0);
  ASSERT_TRUE(same.has_value());
  EXPECT_NE((*same)->version_fingerprint(), (*after)->version_fingerprint());
  EXPECT_EQ((*same)->fingerprint(), (*after)->fingerprint()) << "the same content";
}

TEST_F(Tokens, AskedForByKeyAreStaleInTheCacheToo) {
  const TemporaryDirectory dir;
  store_.set("a.bin", "aabb");
  store_.set("a.idx", make_idx({2}, {0, 1}));
  DatasetOptions options;
  options.index_cache_dir = dir.path();
  options.keys = {"a.bin"};
  for (const Format format : {Format::kTokens, Format::kAuto}) {
    SCOPED_TRACE(format_name(format));
    options.format = format;
    store_.set("a.idx", make_idx({2}, {0, 1}));
    auto before = Dataset::open(store_, *pool_, options);
    ASSERT_TRUE(before.has_value()) << before.error().message();
    store_.set("a.idx", make_idx({1, 1}, {0, 1, 2}));
    auto after = Dataset::open(store_, *pool_, options);
    ASSERT_TRUE(after.has_value()) << after.error().message();
    // By its key alone a .bin is a file like any other unless the format is said.
    EXPECT_EQ((*after)->sample_count(), format == Format::kTokens ? 2U : 1U);
  }
}

TEST_F(Tokens, RefuseSamplesThatNoBlockHolds) {
  store_.set("a.bin", "aabb");
  EXPECT_EQ(code(std::uint64_t{1} << 31), Code::kInvalidArgument);
  EXPECT_NE(message_.find("a.bin"), std::string::npos) << message_;
  EXPECT_NE(message_.find("tokens_per_sample"), std::string::npos) << message_;
}

TEST(IdxLayout, SurvivesItsText) {
  using detail::format_idx_layout;
  using detail::parse_idx_layout;
  EXPECT_EQ(format_idx_layout({}), "");
  auto files = parse_idx_layout(format_idx_layout({{"a.idx", "\"v\"", 7}}));
  ASSERT_TRUE(files.has_value());
  ASSERT_EQ(files->size(), 1U);
  EXPECT_EQ((*files)[0].key, "a.idx");
  EXPECT_EQ((*files)[0].etag, "\"v\"");
  EXPECT_EQ((*files)[0].size_bytes, 7U);
  EXPECT_EQ(parse_idx_layout("{\"idx\":[1]}").error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_idx_layout("{}").error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace
