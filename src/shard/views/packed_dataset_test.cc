#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "headrace/views.h"
#include "io/testing/fake_store.h"
#include "shard/testing/make_mds.h"
#include "shard/testing/read_dataset.h"

namespace headrace {
namespace {

using testing::FakeStore;

std::uint16_t token_of(std::uint64_t document, std::uint32_t i) {
  return static_cast<std::uint16_t>(1 + (document * 131 + i) % 60'000);
}

/// An MDS dataset with the columns id (int) and tokens (ndarray of uint16, as MDSWriter writes it).
class PackedTest : public ::testing::Test {
 protected:
  void write(const std::vector<std::uint32_t>& lengths, std::string_view encoding,
             std::size_t per_shard = 50) {
    nlohmann::json shards = nlohmann::json::array();
    for (std::size_t at = 0; at < lengths.size(); at += per_shard) {
      std::vector<std::string> samples;
      for (std::size_t d = at; d < std::min(lengths.size(), at + per_shard); ++d)
        samples.push_back(make_sample(d, lengths[d], encoding));
      const std::string bytes = testing::mds_shard(samples);
      const std::string name = "shard." + std::to_string(at) + ".mds";
      auto entry = testing::mds_shard_entry(name, bytes.size(), samples.size());
      entry["column_names"] = {"id", "tokens"};
      entry["column_encodings"] = {"int", encoding};
      entry["column_sizes"] = {8, nullptr};
      shards.push_back(entry);
      store_.set(name, bytes);
    }
    store_.set("index.json", nlohmann::json({{"version", 2}, {"shards", shards}}).dump());
    lengths_ = lengths;
  }

  std::shared_ptr<const Dataset> open_documents(std::uint64_t block_bytes = 64 << 10) {
    DatasetOptions options;
    options.block_bytes = block_bytes;
    auto dataset = Dataset::open(store_, *pool_, options);
    EXPECT_TRUE(dataset) << dataset.error().message();
    return *dataset;
  }

  /// Checks every sequence of the packed dataset and that each token is in one of them.
  void expect_every_token_once(const PackedDataset& packed, std::uint32_t length,
                               std::uint16_t pad) {
    auto samples = testing::read_all(store_, *pool_, packed);
    ASSERT_TRUE(samples) << samples.error().message();
    ASSERT_EQ(samples->size(), packed.sample_count());
    std::map<std::uint64_t, std::uint64_t> expected;
    for (std::size_t d = 0; d < lengths_.size(); ++d) {
      for (std::uint32_t i = 0; i < lengths_[d]; ++i) ++expected[token_of(d, i)];
    }
    std::map<std::uint64_t, std::uint64_t> seen;
    for (std::uint64_t s = 0; s < samples->size(); ++s) {
      const auto& sample = (*samples)[s];
      ASSERT_EQ(sample[0].bytes.size(), 2 * length);
      ASSERT_EQ(sample[1].bytes.size(), 4 * length);
      ASSERT_EQ(sample[2].bytes.size(), 4 * length);
      std::int32_t last = 0;
      std::int32_t expected_position = 0;
      for (std::uint32_t i = 0; i < length; ++i) {
        std::uint16_t token = 0;
        std::int32_t segment = 0;
        std::int32_t position = 0;
        std::memcpy(&token, sample[0].bytes.data() + 2 * i, 2);
        std::memcpy(&segment, sample[1].bytes.data() + 4 * i, 4);
        std::memcpy(&position, sample[2].bytes.data() + 4 * i, 4);
        if (segment == 0) {
          ASSERT_EQ(token, pad);
          ASSERT_EQ(position, 0);
          last = 0;
          continue;
        }
        if (segment != last) {
          ASSERT_EQ(segment, last + 1);
          expected_position = 0;
        }
        ASSERT_EQ(position, expected_position++);
        last = segment;
        ++seen[token];
      }
      // The smallest read of one sequence gives the same.
      auto one = testing::read_one(store_, *pool_, packed, s);
      ASSERT_TRUE(one) << one.error().message();
      for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ((*one)[c].bytes, sample[c].bytes);
    }
    EXPECT_EQ(seen, expected);
  }

  static std::string make_sample(std::uint64_t d, std::uint32_t length, std::string_view encoding) {
    std::string value;
    if (encoding == "ndarray") value.push_back(16);
    if (encoding.starts_with("ndarray")) {
      const int k = length < 256 ? 0 : 1;
      value.push_back(static_cast<char>(1 << 2 | k));
      value.push_back(static_cast<char>(length & 0xff));
      if (k == 1) value.push_back(static_cast<char>(length >> 8));
    }
    for (std::uint32_t i = 0; i < length; ++i) {
      const std::uint16_t token = token_of(d, i);
      value.push_back(static_cast<char>(token & 0xff));
      value.push_back(static_cast<char>(token >> 8));
    }
    std::string sample;
    testing::append_u32(sample, value.size());
    sample.append(reinterpret_cast<const char*>(&d), 8);
    return sample + value;
  }

  static std::vector<std::uint32_t> random_lengths(std::size_t count) {
    Random random(3);
    std::vector<std::uint32_t> lengths(count);
    for (auto& length : lengths) length = static_cast<std::uint32_t>(1 + random.below(700));
    return lengths;
  }

  FakeStore store_;
  std::unique_ptr<SlabPool> pool_ = testing::make_pool();
  std::vector<std::uint32_t> lengths_;
};

TEST_F(PackedTest, HoldsEveryTokenOnceWhateverTheEncodingAndMethod) {
  for (const char* encoding : {"ndarray:uint16", "ndarray", "bytes"}) {
    write(random_lengths(300), encoding);
    for (const auto method : {PackMethod::kConcatenate, PackMethod::kBestFit}) {
      SCOPED_TRACE(std::string(encoding) + " " + std::string(pack_method_name(method)));
      PackTokensOptions options;
      options.length = 256;
      options.method = method;
      options.pad_token = 65'535;
      if (encoding != std::string_view("ndarray:uint16")) options.dtype = "uint16";
      auto packed = pack_tokens(open_documents(), options);
      ASSERT_TRUE(packed) << packed.error().message();
      EXPECT_GT((*packed)->block_count(), 2U);
      EXPECT_EQ((*packed)->report().dropped_tokens, 0U);
      expect_every_token_once(**packed, 256, 65'535);
    }
  }
}

TEST_F(PackedTest, IsADatasetOfSequences) {
  write(random_lengths(300), "ndarray:uint16", 150);
  PackTokensOptions options;
  options.length = 128;
  const auto packed = *pack_tokens(open_documents(), options);
  ASSERT_EQ(packed->columns().size(), 3U);
  EXPECT_EQ(packed->columns()[0].dtype, "uint16");
  EXPECT_EQ(packed->columns()[1].shape, (std::vector<std::uint64_t>{128}));
  std::uint64_t next = 0;
  for (std::uint32_t b = 0; b < packed->block_count(); ++b) {
    EXPECT_EQ(packed->block(b).first_sample, next);
    EXPECT_EQ(packed->block_of(next), b);
    next += packed->block(b).sample_count;
    EXPECT_EQ(packed->block_of(next - 1), b);
  }
  EXPECT_EQ(next, packed->sample_count());
  std::uint64_t in_shards = 0;
  for (std::uint32_t s = 0; s < packed->shard_count(); ++s) {
    EXPECT_EQ(packed->shard(s).first_sample, in_shards);
    in_shards += packed->shard(s).sample_count;
  }
  EXPECT_EQ(in_shards, packed->sample_count());
  // What the samples are depends on the options and on the blocks.
  const std::string& fingerprint = packed->fingerprint();
  EXPECT_EQ((*pack_tokens(open_documents(), options))->fingerprint(), fingerprint);
  EXPECT_NE((*pack_tokens(open_documents(128 << 10), options))->fingerprint(), fingerprint);
  options.pad_token = 1;
  EXPECT_NE((*pack_tokens(open_documents(), options))->fingerprint(), fingerprint);
}

TEST_F(PackedTest, SaysWhatItCannotPack) {
  write(random_lengths(20), "ndarray:uint16");
  const auto documents = open_documents();
  const auto code = [&](auto change) {
    PackTokensOptions options;
    change(options);
    auto packed = pack_tokens(documents, options);
    return packed ? Code::kOk : packed.error().code();
  };
  using O = PackTokensOptions;
  EXPECT_EQ(code([](O&) {}), Code::kOk);
  EXPECT_EQ(code([](O& o) { o.length = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](O& o) { o.length = 1 << 25; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](O& o) { o.min_piece = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](O& o) { o.column = "text"; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](O& o) { o.column = "id"; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](O& o) { o.pad_token = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](O& o) { o.pad_token = 65'536; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](O& o) { o.drop_partial = true; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](O& o) {
              o.method = PackMethod::kConcatenate;
              o.drop_partial = true;
              o.length = 1 << 20;
            }),
            Code::kInvalidArgument)
      << "no sequence at all";
  EXPECT_EQ(parse_pack_method("first_fit").error().code(), Code::kInvalidArgument);
}

TEST_F(PackedTest, WantsADtypeForBytesAndOnlyOneSizeThatVaries) {
  write(random_lengths(20), "bytes");
  PackTokensOptions options;
  EXPECT_EQ(pack_tokens(open_documents(), options).error().code(), Code::kInvalidArgument);
  options.dtype = "float32";
  EXPECT_EQ(pack_tokens(open_documents(), options).error().code(), Code::kInvalidArgument);
  options.dtype = "uint32";
  EXPECT_EQ(pack_tokens(open_documents(), options).error().code(), Code::kCorrupt)
      << "an odd number of bytes of some document";
}

TEST_F(PackedTest, NoticesDocumentsThatAreNotWhatTheIndexSays) {
  write(random_lengths(60), "ndarray:uint16");
  PackTokensOptions options;
  options.length = 64;
  const auto packed = *pack_tokens(open_documents(), options);
  auto bytes = testing::read_block(store_, *pool_, *packed, 0, 0, packed->block(0).sample_count);
  ASSERT_TRUE(bytes);
  std::vector<ColumnBytes> cells(3);
  const std::uint32_t count = packed->block(0).sample_count;
  // The size of the first document's value.
  (*bytes)[0] = static_cast<char>((*bytes)[0] + 2);
  bool is_corrupt = false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Status status =
        packed->cut({0, 0, count, std::as_bytes(std::span(*bytes)), nullptr}, i, cells);
    EXPECT_TRUE(status.ok() || status.code() == Code::kCorrupt);
    is_corrupt = is_corrupt || !status.ok();
  }
  EXPECT_TRUE(is_corrupt);
}

}  // namespace
}  // namespace headrace
