// Opening a dataset whose bytes flip on the wire, where the format has no checksum that tells.
#include "shard/sure_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/random.h"
#include "base/test_seed.h"
#include "headrace/dataset.h"
#include "headrace/range_fetcher.h"
#include "io/testing/fake_store.h"
#include "shard/testing/make_mds.h"
#include "shard/testing/read_dataset.h"

namespace headrace {
namespace {

using testing::FakeStore;
using ::testing::HasSubstr;
using testing::make_mds;
using testing::make_pool;

class FlippedOpening : public ::testing::Test {
 protected:
  /// What becomes of the n-th read (from 0) of index.json.
  using Flip = std::function<void(std::uint64_t, std::span<std::byte>)>;

  void SetUp() override { make_mds(store_, {.shard_count = 3}); }
  Result<std::shared_ptr<const Dataset>> open(Flip flip) {
    reads_ = 0;
    store_.shared().on_get = [this, flip = std::move(flip)](std::string_view key,
                                                            std::span<std::byte> bytes) {
      if (key == "index.json") flip(reads_++, bytes);
    };
    return Dataset::open(store_, *pool_, {});
  }
  void expect_opens(const Flip& flip) {
    auto dataset = open(flip);
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    EXPECT_EQ((*dataset)->sample_count(), 30U);
  }
  /// Writes over the first `what`; of the same length, as flips leave it.
  static void spoil(std::span<std::byte> bytes, std::string_view what, std::string_view by) {
    ASSERT_EQ(what.size(), by.size());
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t at = text.find(what);
    ASSERT_NE(at, std::string_view::npos) << what;
    std::memcpy(bytes.data() + at, by.data(), by.size());
  }

  FakeStore store_;
  std::unique_ptr<SlabPool> pool_ = make_pool();
  std::uint64_t reads_ = 0;
};

TEST_F(FlippedOpening, TheSameErrorOfOtherBytesIsNotTheDatas) {
  // Each read that is spoilt says the same: shard 0 has no sample count.
  const std::vector<std::string> spoilt = {"\"sanples\"", "\"samqles\"", "\"samplms\""};
  for (std::size_t count = 1; count <= spoilt.size(); ++count) {
    expect_opens([&](std::uint64_t n, std::span<std::byte> bytes) {
      if (n < count) spoil(bytes, "\"samples\"", spoilt[n]);
    });
    EXPECT_EQ(reads_, std::max<std::uint64_t>(count, 1) + 2);
  }
}

TEST_F(FlippedOpening, NamesVersionsAndKindsMayBeFlippedToo) {
  using Edit = std::pair<std::string, std::string>;
  for (const Edit& edit :
       {Edit{"\"format\":\"mds\"", "\"format\":\"mdr\""},  // kUnsupported
        Edit{"\"version\":2}", "\"version\":3}"},          // kUnsupported
        Edit{"shard.00001.mds", "shard.00001.mdr"},        // kNotFound
        Edit{"shard.00001.mds", "shard.00000.mds"},        // kCorrupt: twice the same file
        Edit{"\"shards\"", "\"shardr\""}}) {               // kCorrupt: no index.json of MDS
    expect_opens([&](std::uint64_t n, std::span<std::byte> bytes) {
      if (n == 0) spoil(bytes, edit.first, edit.second);
    });
  }
}

TEST_F(FlippedOpening, BytesThatComeTwiceTheSameAreTheDatas) {
  auto dataset = open([](std::uint64_t n, std::span<std::byte> bytes) {
    spoil(bytes, "\"samples\"", n == 1 ? "\"sanples\"" : "\"samqles\"");
  });
  ASSERT_FALSE(dataset.has_value());
  EXPECT_EQ(dataset.error().code(), Code::kCorrupt);
  EXPECT_THAT(std::string(dataset.error().message()), HasSubstr("no sample count"));
  EXPECT_EQ(reads_, 4U);  // Once at first; then one that differs, and twice the same.
}

TEST_F(FlippedOpening, BytesThatNeverComeTwiceTheSameAreNobodysFault) {
  auto dataset = open([](std::uint64_t n, std::span<std::byte> bytes) {
    spoil(bytes, "\"samples\"", "\"samp" + std::to_string(n) + "es\"");
  });
  ASSERT_FALSE(dataset.has_value());
  EXPECT_EQ(dataset.error().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(dataset.error().message()), HasSubstr("fake://data/index.json [0, "));
}

TEST(SureStore, GivesTheRightBytesOfManyReadsAtOnce) {
  Random random(test_seed() + 31);
  FakeStore store;
  std::string content(100'000, '\0');
  for (char& c : content) c = static_cast<char>(random.next());
  store.set("a", content);
  std::uint64_t flip_count = 0;
  store.shared().on_get = [&](std::string_view, std::span<std::byte> bytes) {
    if (random.below(10) != 0) return;
    bytes[random.below(bytes.size())] ^= std::byte{16};
    ++flip_count;
  };
  detail::SureStore sure(store);
  const auto pool = make_pool();
  auto fetcher = *RangeFetcher::create(sure, *pool, {});
  std::vector<RangeRead> reads(500);
  for (RangeRead& read : reads) {
    read.key = "a";
    read.offset_bytes = random.below(content.size());
    read.length_bytes = 1 + random.below(200);
    read.allow_short = true;
  }
  auto got = fetch_all(*fetcher, reads);
  ASSERT_TRUE(got.has_value()) << got.error().message();
  for (std::size_t i = 0; i < reads.size(); ++i)
    ASSERT_EQ((*got)[i], content.substr(reads[i].offset_bytes, reads[i].length_bytes)) << i;
  EXPECT_GT(flip_count, 50U);
  EXPECT_GE(store.shared().get_count, 2 * reads.size());
}

TEST(SureStore, ErrorsAreHandedOnAtOnce) {
  FakeStore store;
  detail::SureStore sure(store);
  const auto pool = make_pool();
  EXPECT_EQ(read_object(sure, *pool, "none", 1000).error().code(), Code::kNotFound);
  EXPECT_EQ(store.shared().get_count, 1U);
}

}  // namespace
}  // namespace headrace
