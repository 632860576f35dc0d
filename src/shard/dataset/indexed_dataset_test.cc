#include "shard/dataset/indexed_dataset.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "shard/testing/deflate.h"

namespace headrace::detail {
namespace {

using testing::deflate;

// Column 0 is the sample's bytes.
class WholeSamples final : public IndexedDataset {
 public:
  using IndexedDataset::IndexedDataset;
  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_TRY_ASSIGN(const auto sample, sample_bytes(bytes, index));
    out[0] = {sample, true};
    return Status();
  }
};

// One object, its samples and how they are framed.
struct Made {
  std::string object;
  std::vector<std::string> samples;
  std::vector<Frame> frames;
  std::string index;
};

Made make(Random& random, Compression compression, std::size_t frame_count) {
  Made made;
  std::vector<std::uint64_t> bounds{0};
  for (std::size_t f = 0; f < frame_count; ++f) {
    made.object.append(random.below(3) == 0 ? random.below(50) : 0, '#');
    Frame frame{made.object.size(), 0, bounds.back(), 0, made.samples.size()};
    std::string raw;
    const std::uint64_t count = random.below(4) == 0 ? 0 : random.below(30);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::string sample(random.below(9000), '\0');
      for (char& c : sample) c = static_cast<char>('a' + random.below(4));
      raw += sample;
      bounds.push_back(bounds.back() + sample.size());
      made.samples.push_back(std::move(sample));
    }
    const std::string stored = deflate(compression, raw);
    frame.stored_bytes = stored.size();
    frame.raw_bytes = raw.size();
    made.object += stored;
    made.frames.push_back(frame);
  }
  IndexWriter writer;
  ShardRecord shard;
  shard.sample_count = made.samples.size();
  shard.stored_bytes = made.object.size();
  shard.raw_bytes = bounds.back();
  shard.compression = compression;
  shard.bounds = writer.bounds().append(bounds);
  shard.first_frame = writer.add_frames(made.frames);
  shard.frame_count = static_cast<std::uint32_t>(made.frames.size());
  writer.add_object("k", "\"e\"", made.object.size());
  writer.add_shard(shard);
  made.index =
      writer.finish({.format = Format::kText,
                     .columns = {{.name = "x", .encoding = "bytes", .dtype = {}, .shape = {}}},
                     .source = {"k", "\"e\"", made.object.size()}});
  return made;
}

Result<DatasetParts> parts_of(const std::string& index, std::uint64_t block_bytes) {
  DatasetParts parts{.url = "mem:", .bytes = IndexBytes(index), .view = {}, .blocks = {}};
  HEADRACE_TRY_ASSIGN(parts.view, IndexView::parse(parts.bytes.bytes()));
  HEADRACE_TRY_ASSIGN(parts.blocks, make_blocks(parts.view, block_bytes));
  return parts;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// All samples, block by block, from what append_extents() asks for.
std::vector<std::string> read_all(const Dataset& dataset, const std::string& object) {
  std::vector<std::string> out;
  for (std::uint32_t b = 0; b < dataset.block_count(); ++b) {
    const Block block = dataset.block(b);
    std::vector<Extent> extents;
    const std::uint64_t size = dataset.append_extents(b, 0, 1, extents);
    EXPECT_EQ(size, block.stored_bytes);
    EXPECT_EQ(extents.size(), 1U);
    const auto stored =
        std::as_bytes(std::span(object)).subspan(extents[0].offset_bytes, extents[0].length_bytes);
    std::vector<std::byte> raw(block.raw_bytes);
    const Status status = dataset.decompress(b, stored, raw);
    EXPECT_TRUE(status.ok()) << status.message();
    for (std::uint32_t i = 0; i < block.sample_count; ++i) {
      ColumnBytes column;
      const Status cut = dataset.cut({b, 0, block.sample_count, raw}, i, {&column, 1});
      EXPECT_TRUE(cut.ok()) << cut.message();
      out.emplace_back(as_text(column.bytes));
    }
  }
  return out;
}

TEST(IndexedDataset, ReadsShardsMadeOfFrames) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Compression kinds[] = {Compression::kZstd, Compression::kGzip, Compression::kSnappy};
    const Made made = make(random, kinds[seed % 3], 1 + random.below(20));
    const std::uint64_t block_bytes = kSmallestBlockBytes + random.below(200'000);
    auto parts = parts_of(made.index, block_bytes);
    ASSERT_TRUE(parts.has_value()) << parts.error().message();
    for (const Block& block : parts->blocks) {
      const ShardRecord& shard = parts->view.shards()[0];
      const FrameRun run = frames_of(parts->view, shard, block.first_sample, block.sample_count);
      EXPECT_TRUE(std::max(block.stored_bytes, block.raw_bytes) <= block_bytes ||
                  run.end - run.begin == 1);
    }
    const WholeSamples dataset(*std::move(parts));
    EXPECT_EQ(read_all(dataset, made.object), made.samples);
  }
}

TEST(IndexedDataset, NamesTheFrameThatIsDamaged) {
  Random random(5);
  Made made = make(random, Compression::kZstd, 3);
  auto parts = parts_of(made.index, kSmallestBlockBytes);
  ASSERT_TRUE(parts.has_value());
  const WholeSamples dataset(*std::move(parts));
  std::vector<Extent> extents;
  dataset.append_extents(0, 0, 1, extents);
  std::vector<std::byte> raw(dataset.block(0).raw_bytes);
  const std::vector<std::byte> zeros(dataset.block(0).stored_bytes);
  const Status status = dataset.decompress(0, zeros, raw);
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_NE(status.message().find("frame at byte"), std::string::npos);
  EXPECT_EQ(dataset.decompress(0, std::span(zeros).first(1), raw).code(), Code::kInvalidArgument);
}

TEST(IndexedDataset, RefusesFramesThatDoNotFit) {
  const std::vector<Frame> good{{0, 10, 0, 20, 0}, {15, 10, 20, 30, 2}};
  const auto code = [](std::vector<Frame> frames, std::uint32_t count = 2,
                       std::uint64_t first = 0) {
    IndexWriter writer;
    ShardRecord shard;
    shard.sample_count = 5;
    shard.stored_bytes = 30;
    shard.raw_bytes = 50;
    shard.compression = Compression::kZstd;
    shard.bounds = writer.bounds().append(std::vector<std::uint64_t>{0, 10});
    shard.first_frame = writer.add_frames(frames) + first;
    shard.frame_count = count;
    writer.add_object("k", "", 30);
    writer.add_shard(shard);
    const std::string bytes = writer.finish({.format = Format::kText, .columns = {}, .source = {}});
    auto view = IndexView::parse(std::as_bytes(std::span(bytes)));
    return view ? Code::kOk : view.error().code();
  };
  EXPECT_EQ(code(good), Code::kOk);
  EXPECT_EQ(code(good, 3), Code::kCorrupt);
  EXPECT_EQ(code(good, 2, 1), Code::kCorrupt);
  EXPECT_EQ(code(good, 2, ~std::uint64_t{0} - 1), Code::kCorrupt);
  EXPECT_EQ(code({{0, 10, 0, 20, 0}}, 1), Code::kCorrupt);                    // Not filled.
  EXPECT_EQ(code({{0, 16, 0, 20, 0}, {15, 10, 20, 30, 2}}), Code::kCorrupt);  // Overlap.
  EXPECT_EQ(code({{0, 10, 0, 20, 0}, {15, 16, 20, 30, 2}}), Code::kCorrupt);  // Too long.
  EXPECT_EQ(code({{0, 10, 0, 20, 0}, {15, 10, 21, 29, 2}}), Code::kCorrupt);  // Hole.
  EXPECT_EQ(code({{0, 10, 0, 20, 1}, {15, 10, 20, 30, 2}}), Code::kCorrupt);  // Samples lost.
  EXPECT_EQ(code({{0, 10, 0, 20, 0}, {15, 10, 20, 30, 6}}), Code::kCorrupt);  // Beyond the end.
}

TEST(IndexedDataset, ReadsACompressedShardWithBoundsAsOneFrame) {
  const std::string raw_text = "aabbbccccd", stored = deflate(Compression::kXz, raw_text);
  IndexWriter writer;
  ShardRecord shard;
  shard.sample_count = 4;
  shard.stored_bytes = stored.size();
  shard.raw_bytes = raw_text.size();
  shard.compression = Compression::kXz;
  shard.bounds = writer.bounds().append(std::vector<std::uint64_t>{0, 2, 5, 9, 10});
  writer.add_object("k", "", stored.size());
  writer.add_shard(shard);
  const std::string index =
      writer.finish({.format = Format::kText,
                     .columns = {{.name = "x", .encoding = "bytes", .dtype = {}, .shape = {}}},
                     .source = {}});
  auto parts = parts_of(index, 0);
  ASSERT_TRUE(parts.has_value()) << parts.error().message();
  const WholeSamples dataset(*std::move(parts));
  EXPECT_EQ(dataset.shard(0).compression, "xz");
  EXPECT_TRUE(dataset.is_compressed(0));
  EXPECT_FALSE(dataset.is_unpacked(0));
  EXPECT_EQ(read_all(dataset, stored), (std::vector<std::string>{"aa", "bbb", "cccc", "d"}));
}

}  // namespace
}  // namespace headrace::detail
