// Boundaries that are read from the file when they are looked at, and files that change meanwhile.
#include "shard/index/index_pages.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/cut_off.h"
#include "base/random.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/index/hri.h"
#include "shard/index/index_file.h"

namespace headrace::detail {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSamples = 50'000;  // A shard; their boundaries take 30 pages and more.

/// An index of lines of 1 to 5,000 bytes.
std::string make_index(std::uint64_t seed, std::size_t shard_count) {
  Random random(seed);
  IndexWriter writer;
  for (std::size_t s = 0; s < shard_count; ++s) {
    std::vector<std::uint64_t> bounds = {0};
    for (std::uint64_t i = 0; i < kSamples; ++i)
      bounds.push_back(bounds.back() + 1 + random.below(5000));
    writer.add_object("part-" + std::to_string(s), "\"e\"", bounds.back());
    ShardRecord shard;
    shard.sample_count = kSamples;
    shard.stored_bytes = shard.raw_bytes = bounds.back();
    shard.first_object = s;
    shard.bounds = writer.bounds().append(bounds);
    writer.add_shard(shard);
  }
  return writer.finish({.format = Format::kText,
                        .columns = {{.name = "x", .encoding = "bytes", .dtype = {}, .shape = {}}},
                        .source = {"part-0", "\"e\"", 1}});
}

class Lines final : public IndexedDataset {
 public:
  explicit Lines(DatasetParts parts) : IndexedDataset(std::move(parts)) {}
  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_TRY_ASSIGN(const auto sample, sample_bytes(bytes, index));
    out[0] = {sample, true};
    return Status();
  }
};

class IndexPagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    content_ = make_index(test_seed() + 7, 3);
    ASSERT_TRUE(publish_file(path(), content_).ok());
    expected_ = *IndexView::parse(std::as_bytes(std::span(content_)));
  }
  std::string path() const { return directory_.path() + "/index"; }
  IndexBytes read() const {
    auto bytes = IndexBytes::read(path(), 0);
    EXPECT_TRUE(bytes.has_value());
    return *std::move(bytes);
  }
  static IndexView view_of(const IndexBytes& bytes) {
    auto view = IndexView::parse(bytes.bytes(), true, bytes.pages());
    EXPECT_TRUE(view.has_value()) << view.error().message();
    return *std::move(view);
  }
  /// The dataset of the file, which is read as it is looked at.
  std::shared_ptr<const Dataset> open() const {
    DatasetParts parts{.url = "mem:", .bytes = read(), .view = {}, .blocks = {}};
    parts.view = view_of(parts.bytes);
    parts.blocks = *make_blocks(parts.view, kSmallestBlockBytes);
    return std::make_shared<const Lines>(std::move(parts));
  }
  bool is_right(const IndexView& view, std::uint64_t place) const {
    const std::size_t shard = place / kSamples % 3;
    const std::uint64_t i = place % kSamples;
    const auto right = expected_.range_of(expected_.shards()[shard], i);
    const auto got = view.range_of(view.shards()[shard], i);
    return got.begin == right.begin && got.end == right.end;
  }

  TemporaryDirectory directory_;
  std::string content_;
  IndexView expected_;
};

TEST_F(IndexPagesTest, GivesTheSameAsTheFileInMemory) {
  const IndexBytes bytes = read();
  ASSERT_NE(bytes.pages(), nullptr);
  const IndexView view = view_of(bytes);
  EXPECT_EQ(view.object(2).key, "part-2");
  for (std::uint64_t i = 0; i < 3 * kSamples; ++i) ASSERT_TRUE(is_right(view, i)) << i;
  EXPECT_TRUE(bytes.pages()->status().ok());
  // Small files are in memory.
  EXPECT_EQ(IndexBytes::read(path())->pages(), nullptr);
}

TEST_F(IndexPagesTest, ManyThreadsMayLook) {
  const IndexBytes bytes = read();
  const IndexView view = view_of(bytes);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(test_seed() + t);
      for (int i = 0; i < 20'000; ++i) wrong += is_right(view, random.below(3 * kSamples)) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(IndexPagesTest, KeepsAPartOfALargeFileOnly) {
  std::vector<std::byte> image(64 << 20);
  ASSERT_EQ(::truncate(path().c_str(), static_cast<off_t>(image.size())), 0);
  Fd fd(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
  std::memcpy(image.data(), content_.data(), 96);
  const IndexPages pages(std::move(fd), path(), image, 96);
  std::byte got[2] = {};
  // Twice: four times as many pages as are kept replace each other.
  for (int round = 0; round < 2; ++round) {
    for (std::size_t at = IndexPages::kPageBytes - 1; at + 1 < image.size();
         at += IndexPages::kPageBytes) {
      pages.read(image.data() + at, got);
      const bool is_written = at < content_.size();
      ASSERT_EQ(got[0], is_written ? static_cast<std::byte>(content_[at]) : std::byte{}) << at;
    }
  }
  pages.read(image.data() + image.size() - 1, got);  // Ends outside.
  EXPECT_EQ(got[0], std::byte{});
  EXPECT_TRUE(pages.status().ok());
}

TEST_F(IndexPagesTest, AnIndexThatIsCutOffIsAnErrorAndEndsNobody) {
  const auto dataset = open();
  const std::uint32_t last = dataset->block_count() - 1;
  std::vector<Extent> extents;
  const std::uint64_t size = dataset->append_extents(0, 0, 1, extents);
  ASSERT_GT(size, 0U);
  const std::vector<std::byte> stored(5000);
  cut_off(path(), 4096);  // SIGBUS, were it mapped.
  // Whatever is looked at: right, or an error.
  std::uint64_t errors = 0;
  ColumnBytes column;
  for (std::uint32_t b = 0; b <= last; ++b) {
    extents.clear();
    const std::uint64_t now = dataset->append_extents(b, 0, 1, extents);
    const std::uint64_t position = dataset->block(b).first_sample;
    const auto right =
        expected_.range_of(expected_.shards()[position / kSamples], position % kSamples);
    EXPECT_TRUE(now == 0 || now == right.end - right.begin);
    const Status status = dataset->cut({b, 0, 1, stored}, 0, {&column, 1});
    if (status.ok()) continue;
    ++errors;
    EXPECT_EQ(status.code(), Code::kChanged);
    EXPECT_THAT(std::string(status.message()), HasSubstr("cut off"));
  }
  EXPECT_GT(errors, 0U);
  EXPECT_EQ(dataset->append_extents(last, 0, 1, extents), 0U);
  EXPECT_TRUE(dataset->index_bytes().empty());
}

TEST_F(IndexPagesTest, AnotherIndexInTheSameFileIsAnError) {
  const IndexBytes bytes = read();
  const IndexView view = view_of(bytes);
  const std::string other = make_index(1, 3);
  {
    const Fd fd(::open(path().c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), other.data(), other.size(), 0),
              static_cast<ssize_t>(other.size()));
    ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(std::max(other.size(), content_.size()))),
              0);
  }
  view.range_of(view.shards()[1], 5);
  EXPECT_EQ(bytes.pages()->status().code(), Code::kChanged);
  EXPECT_THAT(std::string(bytes.pages()->status().message()), HasSubstr("another index"));
}

TEST_F(IndexPagesTest, AFileThatIsReplacedOrTouchedDoesNotMatter) {
  const IndexBytes bytes = read();
  const IndexView view = view_of(bytes);
  {
    const Fd fd(::open(path().c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::futimens(fd.get(), nullptr), 0);
  }
  EXPECT_TRUE(is_right(view, 5));
  ASSERT_TRUE(publish_file(path(), make_index(1, 3)).ok());
  for (std::uint64_t i = 0; i < 3 * kSamples; i += 100) ASSERT_TRUE(is_right(view, i)) << i;
  EXPECT_TRUE(bytes.pages()->status().ok());
}

TEST_F(IndexPagesTest, AllOfItMayBeReadAfterAll) {
  const IndexBytes bytes = read();
  const auto whole = bytes.whole();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(whole.data()), whole.size()), content_);
  EXPECT_TRUE(IndexView::verify_sums(whole).ok());
}

}  // namespace
}  // namespace headrace::detail
