// ArrayRecord files written here, record for record. Files of the real writer:
// tests/python/test_arrayrecord.py.
#include <gtest/gtest.h>

#include <optional>

#include "base/endian.h"
#include "shard/formats/arrayrecord/array_record_driver.h"
#include "shard/formats/arrayrecord/footer.h"
#include "shard/formats/arrayrecord/highway_hash.h"
#include "shard/formats/arrayrecord/riegeli.h"
#include "shard/testing/build_dataset.h"
#include "shard/testing/deflate.h"
#include "shard/testing/read_dataset.h"

namespace headrace::detail {
namespace {

using testing::FakeStore;

constexpr std::array<std::uint64_t, 4> kKey{0x2f696c6567656952, 0x0a7364726f636572,
                                            0x2f696c6567656952, 0x0a7364726f636572};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}
std::string word(std::uint64_t value) { return {reinterpret_cast<const char*>(&value), 8}; }
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}

// Writes chunks into blocks whose headers are zeros: readers of chunks pass over them.
class Writer {
 public:
  Writer() { add_chunk('s', 0, 0, ""); }

  /// Returns where it begins.
  std::uint64_t add_chunk(char type, std::uint64_t count, std::uint64_t decoded,
                          const std::string& data) {
    const std::string rest = word(data.size()) + word(highway_hash64(bytes_of(data), kKey)) +
                             word(count << 8 | static_cast<unsigned char>(type)) + word(decoded);
    const std::uint64_t begin = file_.size();
    for (const char c : word(highway_hash64(bytes_of(rest), kKey)) + rest + data) {
      if (file_.size() % kRiegeliBlockBytes == 0) file_ += std::string(24, '\0');
      file_.push_back(c);
    }
    return begin;
  }
  std::uint64_t add_records(const std::vector<std::string>& records, bool is_zstd) {
    std::string sizes, values;
    for (const std::string& record : records) {
      sizes += varint(record.size());
      values += record;
    }
    const std::uint64_t decoded = values.size();
    if (is_zstd) {
      sizes = varint(sizes.size()) + testing::deflate_zstd(sizes);
      values = varint(values.size()) + testing::deflate_zstd(values);
    }
    const std::string data =
        (is_zstd ? "z" : std::string(1, '\0')) + varint(sizes.size()) + sizes + values;
    const std::uint64_t begin = add_chunk('r', records.size(), decoded, data);
    entries_.push_back("\x08" + varint(begin) + "\x10" + varint(decoded) + "\x18" +
                       varint(records.size()));
    count_ += records.size();
    return begin;
  }
  /// `footer_at`: where the postscript says that the footer is, if not where it is.
  std::string finish(std::optional<std::uint64_t> footer_at = {}) {
    const std::string metadata = "\x08\x01\x10" + varint(entries_.size()) + "\x18" + varint(count_);
    std::vector<std::string> footer{"\x0a" + varint(metadata.size()) + metadata};
    footer.insert(footer.end(), entries_.begin(), entries_.end());
    const std::uint64_t at = add_records(footer, false);
    file_.resize((file_.size() / kRiegeliBlockBytes + 1) * kRiegeliBlockBytes);
    add_records({"\x08" + varint(footer_at.value_or(at)) + "\x10" + varint(0x71930e704fdae05e)},
                false);
    file_.resize((file_.size() / kRiegeliBlockBytes + 1) * kRiegeliBlockBytes);
    return file_;
  }

 private:
  std::string file_;
  std::vector<std::string> entries_;
  std::uint64_t count_ = 0;
};

std::string text_of(std::size_t i, std::size_t length) {
  std::string text(length, '\0');
  for (std::size_t j = 0; j < length; ++j) text[j] = static_cast<char>(i * 131 + j * 7);
  return text;
}

class ArrayRecordTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Dataset>> open() {
    DatasetOptions options;
    options.block_bytes = std::uint64_t{64} << 10;
    return testing::build_dataset(store_, *pool_, options, build_array_record_index,
                                  make_array_record_dataset);
  }
  FakeStore store_;
  std::unique_ptr<SlabPool> pool_ = testing::make_pool();
};

TEST_F(ArrayRecordTest, ReadsRecordsOfAllChunks) {
  for (const bool is_zstd : {false, true}) {
    for (const std::size_t group : {1U, 7U}) {
      SCOPED_TRACE(group);
      Writer writer;
      std::vector<std::string> expected;
      for (std::size_t i = 0; i < 40; ++i) {
        std::vector<std::string> records;
        for (std::size_t j = 0; j < group; ++j) {
          records.push_back(text_of(i, i % 5 == 0 ? 0 : 1000 * (i + j)));
          expected.push_back(records.back());
        }
        writer.add_records(records, is_zstd);
      }
      store_.set("a.array_record", writer.finish());
      auto dataset = open();
      ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
      EXPECT_EQ((*dataset)->sample_count(), expected.size());
      EXPECT_GT((*dataset)->block_count(), 3U);
      auto samples = testing::read_all(store_, *pool_, **dataset);
      ASSERT_TRUE(samples.has_value()) << samples.error().message();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ((*samples)[i][0].bytes, expected[i]) << i;
        auto alone = testing::read_one(store_, *pool_, **dataset, i);
        ASSERT_TRUE(alone.has_value()) << alone.error().message();
        EXPECT_EQ((*alone)[0].bytes, expected[i]);
      }
    }
  }
}

TEST_F(ArrayRecordTest, RefusesTransposedChunks) {
  Writer writer;
  const std::uint64_t begin = writer.add_records({"a"}, false);
  std::string file = writer.finish();
  // The same header with another type, and the hash that goes with it.
  file[begin + 24] = 't';
  file.replace(begin, 8, word(highway_hash64(bytes_of(file.substr(begin + 8, 32)), kKey)));
  store_.set("a", file);
  auto dataset = open();
  ASSERT_FALSE(dataset.has_value());
  EXPECT_EQ(dataset.error().code(), Code::kUnsupported);
  EXPECT_NE(dataset.error().message().find("transpose:false"), std::string::npos);
}

TEST_F(ArrayRecordTest, ReportsDamage) {
  Writer writer;
  const std::uint64_t begin = writer.add_records({"record one", "record two"}, false);
  const std::string file = writer.finish();
  std::string damaged = file;
  damaged[begin + 40 + 8] = static_cast<char>(damaged[begin + 40 + 8] ^ 1);
  store_.set("a", damaged);
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  auto samples = testing::read_all(store_, *pool_, **dataset);
  ASSERT_FALSE(samples.has_value());
  EXPECT_EQ(samples.error().code(), Code::kCorrupt);
  EXPECT_NE(samples.error().message().find("hash"), std::string::npos);

  damaged = file;
  damaged[begin + 20] = static_cast<char>(damaged[begin + 20] ^ 1);
  store_.set("a", damaged);
  EXPECT_EQ(open().error().code(), Code::kCorrupt);  // The first chunk's header is looked at.

  store_.set("a", file.substr(0, file.size() - kRiegeliBlockBytes));
  EXPECT_EQ(open().error().code(), Code::kUnsupported);
  store_.set("a", "short");
  EXPECT_EQ(open().error().code(), Code::kUnsupported);
}

TEST_F(ArrayRecordTest, ReadsNoMoreThanAFooterWhereThePostscriptSays) {
  for (const std::uint64_t at : {64U, 100U}) {  // The first chunk, and within it.
    Writer writer;
    for (std::size_t i = 0; i < 32; ++i) writer.add_records({text_of(i, 1'000'000)}, false);
    const std::string file = writer.finish(at);
    store_.set("a", file);
    store_.shared().get_bytes = 0;
    auto dataset = open();
    ASSERT_FALSE(dataset.has_value());
    EXPECT_EQ(dataset.error().code(), Code::kCorrupt) << dataset.error().message();
    EXPECT_LT(store_.shared().get_bytes, file.size() / 2);
  }
}

TEST_F(ArrayRecordTest, ReadsTheFootersOfManyFilesAtOnce) {
  Writer writer;
  writer.add_records({"a", "b"}, false);
  const std::string file = writer.finish();
  for (int i = 100; i < 300; ++i) store_.set(std::to_string(i), file);
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->sample_count(), 400U);
  EXPECT_GT(store_.shared().most_in_flight, 10U);
  store_.set("250", file.substr(kRiegeliBlockBytes));
  dataset = open();
  ASSERT_FALSE(dataset.has_value());
  EXPECT_NE(dataset.error().message().find("fake://data/250"), std::string_view::npos)
      << dataset.error().message();
}

TEST_F(ArrayRecordTest, ReadsAFooterOfSeveralReads) {
  pool_ = testing::make_pool(std::size_t{1} << 20);  // Reads of 128 KiB.
  Writer writer;
  for (int i = 0; i < 40'000; ++i) writer.add_records({"r"}, false);
  store_.set("a", writer.finish());
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->sample_count(), 40'000U);
}

TEST(ArrayRecordFooter, RefusesChunksThatAreNotInOrder) {
  for (const std::uint64_t second : {0U, 50U, 100'000U}) {
    Writer writer;
    const std::string metadata = std::string("\x08\x01\x10\x02\x18\x02");
    const auto entry = [](std::uint64_t at) { return "\x08" + varint(at) + "\x10\x05\x18\x01"; };
    const std::uint64_t at = writer.add_records(
        {"\x0a" + varint(metadata.size()) + metadata, entry(64), entry(second)}, false);
    const std::string file = writer.finish();
    EXPECT_EQ(parse_footer(bytes_of(file).subspan(at), at).error().code(), Code::kCorrupt);
  }
}

TEST(HighwayHash, AgreesWithRiegelisSignature) {
  // The first 64 bytes of every Riegeli file are given in its format's description.
  const unsigned char head[] = {0x91, 0xba, 0xc2, 0x3c, 0x92, 0x87, 0xe1, 0xa9, 0,    0,
                                0,    0,    0,    0,    0,    0,    0xe1, 0x9f, 0x13, 0xc0,
                                0xe9, 0xb1, 0xc3, 0x72, 0x73, 0,    0,    0,    0,    0,
                                0,    0,    0,    0,    0,    0,    0,    0,    0,    0};
  auto chunk = parse_riegeli_chunk(std::as_bytes(std::span(head)));
  ASSERT_TRUE(chunk.has_value()) << chunk.error().message();
  EXPECT_EQ(chunk->type, RiegeliChunk::kSignature);
  EXPECT_EQ(chunk->data_hash, highway_hash64({}, kKey));
}

}  // namespace
}  // namespace headrace::detail
