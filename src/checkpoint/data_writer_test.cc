#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <semaphore>
#include <thread>
#include <utility>

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"
#include "gmock/gmock.h"
#include "headrace/checkpoint.h"
#include "headrace/forwarding_store.h"
#include "store/memory/memory_store.h"

namespace headrace::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMemory = 1 << 20;
constexpr std::uint64_t kPart = 64 << 10;

struct State {
  std::vector<Piece> pieces;
  std::vector<std::vector<std::byte>> values;

  std::vector<StageSource> sources() const {
    std::vector<StageSource> out;
    for (const auto& value : values) out.push_back({value, 0});
    return out;
  }

  explicit State(std::uint64_t seed, std::size_t count = 40) {
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t rows = random() % (i % 7 == 0 ? 50'000 : 3000);
      const bool is_wide = random() % 2 == 0;
      pieces.push_back({"t" + std::to_string(i), is_wide ? "F32" : "U8", {rows, 3}});
      values.emplace_back(rows * 3 * (is_wide ? 4 : 1));
      // Some compress well, some little, some not at all.
      const std::uint64_t kept_bits = std::array{0xFFU, 0x0FU, 0x03U}[i % 3];
      for (std::byte& byte : values.back()) byte = static_cast<std::byte>(random() & kept_bits);
    }
  }
};

/// Changes, drops or delays what is written, as stores are known to.
class BadStore final : public ForwardingStore {
 public:
  enum class Fault : std::uint8_t { kNone, kZeroedPart, kFlippedBit, kFailedPart };
  struct Plan {
    std::atomic<Fault> fault{Fault::kNone};
    std::atomic<int> parts_before{0};
    std::function<void()> before_part = [] {};  ///< On the thread that hands parts to the store.
  };
  BadStore(std::unique_ptr<Store> inner, std::shared_ptr<Plan> plan)
      : ForwardingStore(std::move(inner)), plan_(std::move(plan)) {}

  std::size_t submit(std::span<Request> requests) override {
    for (Request& request : requests) {
      if (request.op == Op::kPutPart) plan_->before_part();
      if (request.op != Op::kPutPart || plan_->parts_before-- != 0) continue;
      const auto bytes = request.slab.bytes();
      if (plan_->fault == Fault::kZeroedPart) std::memset(bytes.data(), 0, bytes.size());
      if (plan_->fault == Fault::kFlippedBit) bytes[bytes.size() / 2] ^= std::byte{4};
      if (plan_->fault == Fault::kFailedPart) request.upload_id = "lost";
    }
    return inner().submit(requests);
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<BadStore>(std::move(handle), plan_));
  }
  std::shared_ptr<Plan> plan_;
};

class DataWriterTest : public ::testing::TestWithParam<const char*> {
 protected:
  DataWriterTest() { open_client(kMemory); }
  /// Makes client_, over a store of its own.
  void open_client(std::uint64_t memory_bytes) {
    StoreOptions options;
    options.url =
        is_file() ? directory_.path() + "/below" : "memory://writer-" + std::to_string(count_++);
    auto store = *open_store(options, {});
    if (!is_file()) store = std::make_unique<BadStore>(std::move(store), plan_);
    client_ = *StoreClient::wrap(std::move(store), memory_bytes);
  }
  static bool is_file() { return std::string_view(GetParam()).starts_with("file"); }
  static std::shared_ptr<const SealKey> key_of(int first) {
    return std::make_shared<const SealKey>(SealKey::Bytes{static_cast<std::byte>(first)});
  }
  static bool is_compressed() {
    return std::string_view(GetParam()).find("compressed") != std::string_view::npos;
  }
  Result<DataLayout> layout_of(const State& state) const {
    if (is_compressed()) return DataLayout::make_compressed(state.pieces, key_);
    if (key_ != nullptr) return DataLayout::make_sealed(state.pieces, key_);
    return DataLayout::make(state.pieces, {{"format", "pt"}});
  }

  Result<DataFile> write(const State& state, const WriteOptions& options = {.part_bytes = kPart}) {
    HEADRACE_TRY_ASSIGN(layout_, layout_of(state));
    HEADRACE_TRY_ASSIGN(auto writer, DataWriter::begin(client_, "a/b/file", layout_, options));
    HEADRACE_TRY(writer->stage(state.sources(), no_pause_));
    return writer->finish(no_pause_);
  }
  /// Whether all of a state can be read back, and is right.
  Status read(const State& state, const DataFile& file) {
    std::vector<std::vector<std::byte>> back;
    std::vector<WantedBox> boxes;
    for (const auto& value : state.values) back.emplace_back(value.size());
    for (std::size_t i = 0; i < back.size(); ++i) {
      const Piece& piece = state.pieces[i];
      const std::uint32_t width = piece.dtype == "F32" ? 4 : 1;
      boxes.push_back({.place = file.places[i],
                       .sums = file.sums[i],
                       .tags = file.tags[i],
                       .stored_bytes = file.stored_bytes[i],
                       .element_bytes = width,
                       .shape = piece.shape,
                       .start = {0, 0},
                       .count = piece.shape,
                       .to = back[i].data(),
                       .to_strides_bytes = {3 * width, width}});
    }
    HEADRACE_TRY_ASSIGN(totals_,
                        read_boxes(*client_, "a/b/file", file.etag, boxes, key_.get(), no_pause_));
    return back == state.values ? Status() : Status(Code::kInternal, "other bytes");
  }

  std::shared_ptr<const SealKey> key_ =
      std::string_view(GetParam()).ends_with("encrypted") ? key_of(1) : nullptr;
  const Pause no_pause_ = [] {};
  TemporaryDirectory directory_;
  std::shared_ptr<BadStore::Plan> plan_ = std::make_shared<BadStore::Plan>();
  std::shared_ptr<StoreClient> client_;
  DataLayout layout_;
  ReadTotals totals_;
  static inline int count_ = 0;
};

TEST_P(DataWriterTest, WhatIsWrittenIsReadBackAndSummed) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const State state(test_seed() + seed);
    auto file = write(state, {.part_bytes = kPart + 4096 * seed, .copy_threads = 3});
    ASSERT_TRUE(file) << file.error().message();
    if (is_compressed()) {
      EXPECT_LT(file->size_bytes, layout_.size_bytes() * 9 / 10);
    } else {
      EXPECT_EQ(file->size_bytes, layout_.size_bytes());
    }
    for (std::size_t i = 0; i < state.values.size(); ++i) {
      for (std::size_t block = 0; block < file->sums[i].size(); ++block) {
        auto rest = std::span(state.values[i]).subspan(block * kSumBlockBytes);
        rest = rest.first(std::min<std::size_t>(rest.size(), kSumBlockBytes));
        ASSERT_EQ(file->sums[i][block], crc32c(rest));
      }
    }
    EXPECT_TRUE(verify_file(*client_, "a/b/file", file->size_bytes, file->crc32c, no_pause_).ok());
    const Status status = read(state, *file);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(client_->pool()->used_bytes(), 0U);
    EXPECT_LE(client_->pool()->peak_bytes(), kMemory);
  }
}

TEST_P(DataWriterTest, NothingAndLittleAreFilesToo) {
  for (const std::size_t count : {0U, 1U}) {
    const State state(3, count);
    auto file = write(state);
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_TRUE(read(state, *file).ok());
  }
}

TEST_P(DataWriterTest, StagedBytesMayChange) {
  State state(7);
  const State same = state;
  auto layout = layout_of(state);
  layout_ = *layout;
  auto writer = DataWriter::begin(client_, "a/b/file", *layout, {.part_bytes = kPart});
  ASSERT_TRUE((*writer)->stage(state.sources(), no_pause_).ok());
  for (auto& value : state.values) std::fill(value.begin(), value.end(), std::byte{0});
  auto file = (*writer)->finish(no_pause_);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_TRUE(read(same, *file).ok());
}

TEST_P(DataWriterTest, WithRoomForAllOfItNothingNeedsToLeaveBeforeItIsCopied) {
  if (is_file()) GTEST_SKIP() << "parts go to the disk without the store";
  State state(7);
  state.pieces.push_back({"odd", "F32", {1, 1}});
  state.values.emplace_back(4, std::byte{0xff});  // NaN
  const State same = state;
  const WriteOptions options{.part_bytes = kPart, .fingerprint_key = FingerprintKey{}};
  auto little = write(state, options);
  ASSERT_TRUE(little) << little.error().message();
  open_client(kMemory << 6);
  std::binary_semaphore gate(0);
  plan_->before_part = [&gate] {
    gate.acquire();
    gate.release();
  };
  layout_ = *layout_of(state);
  auto writer = *DataWriter::begin(client_, "a/b/file", layout_, options);
  ASSERT_TRUE(writer->stage(state.sources(), no_pause_).ok());
  for (auto& value : state.values) std::fill(value.begin(), value.end(), std::byte{0});
  gate.release();
  auto file = writer->finish(no_pause_);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_TRUE(read(same, *file).ok());
  EXPECT_EQ(file->sums, little->sums);
  EXPECT_EQ(file->fingerprints, little->fingerprints);
  EXPECT_EQ(file->values.back().not_finite, 1U);
  EXPECT_EQ(file->values.front().is_zero, little->values.front().is_zero);
  if (key_ == nullptr) {  // Else each file has a salt of its own.
    EXPECT_EQ(file->crc32c, little->crc32c);
  }
  EXPECT_EQ(client_->pool()->used_bytes(), 0U);
}

TEST_P(DataWriterTest, WhoTookTooMuchMemoryForWhatWaitsGivesItBack) {
  if (is_file()) GTEST_SKIP() << "parts go to the disk without the store";
  const State state(7);
  layout_ = *layout_of(state);
  // One file fits, two do not; and each writer has begun when half of the room is taken.
  const std::uint64_t room = layout_.size_bytes() * 5 / 4;
  open_client(room);
  std::atomic<bool> is_staged{false};
  plan_->before_part = [&] {
    while (client_->pool()->used_bytes() < room / 2 && !is_staged) std::this_thread::yield();
  };
  std::vector<std::unique_ptr<DataWriter>> writers;
  for (const char* key : {"one", "other"})
    writers.push_back(*DataWriter::begin(client_, key, layout_, {.part_bytes = kPart}));
  {
    std::jthread beside([&] { EXPECT_TRUE(writers[0]->stage(state.sources(), no_pause_).ok()); });
    EXPECT_TRUE(writers[1]->stage(state.sources(), no_pause_).ok());
  }
  is_staged = true;
  for (const auto& writer : writers) EXPECT_TRUE(writer->finish(no_pause_).has_value());
}

TEST_P(DataWriterTest, PartsMayBeStagedOneByOneFromWhatTheyNeed) {
  const State state(9);
  layout_ = *layout_of(state);
  auto writer = *DataWriter::begin(client_, "a/b/file", layout_, {.part_bytes = kPart});
  ASSERT_GT(writer->part_count(), 3U);
  for (std::uint32_t part = 0; part < writer->part_count();) {
    const std::uint32_t end = std::min(part + 1 + (part % 3), writer->part_count());
    const std::uint64_t first_byte = part * writer->part_bytes();
    const std::uint64_t end_byte = end * writer->part_bytes();
    std::vector<std::vector<std::byte>> copies;
    std::vector<StageSource> sources;
    for (std::size_t i = 0; i < state.values.size(); ++i) {
      const auto& [offset, length] = layout_.places()[i];
      const std::uint64_t from = std::clamp(first_byte, offset, offset + length) - offset;
      const std::uint64_t to = std::clamp(end_byte, offset, offset + length) - offset;
      const auto* bytes = state.values[i].data();
      sources.push_back({copies.emplace_back(bytes + from, bytes + to), from});
    }
    ASSERT_TRUE(writer->stage(sources, part, end, no_pause_).ok());
    part = end;
  }
  auto file = writer->finish(no_pause_);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_TRUE(read(state, *file).ok());
}

TEST_P(DataWriterTest, ASourceThatLacksBytesIsRefused) {
  const State state(9);
  auto writer = *DataWriter::begin(client_, "a/b/file", *layout_of(state), {.part_bytes = kPart});
  std::vector<StageSource> sources = state.sources();
  sources[3].bytes = sources[3].bytes.first(sources[3].bytes.size() - 1);
  const Status status = writer->stage(sources, no_pause_);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("t3: has too few bytes"));
}

TEST_P(DataWriterTest, ASourceWithoutAnAddressIsRefused) {
  const State state(9);
  auto writer = *DataWriter::begin(client_, "a/b/file", *layout_of(state), {.part_bytes = kPart});
  std::vector<StageSource> sources = state.sources();
  sources[3].bytes = std::span(static_cast<const std::byte*>(nullptr), sources[3].bytes.size());
  EXPECT_EQ(writer->stage(sources, no_pause_).code(), Code::kInvalidArgument);
}

TEST_P(DataWriterTest, WhatIsGivenUpLeavesNothing) {
  const State state(7);
  {
    auto writer = DataWriter::begin(client_, "a/b/file", *layout_of(state), {.part_bytes = kPart});
    ASSERT_TRUE((*writer)->stage(state.sources(), no_pause_).ok());
  }
  EXPECT_EQ(client_->store().head("a/b/file").error().code(), Code::kNotFound);
  EXPECT_TRUE(list_all(client_->store(), "")->empty());
  EXPECT_EQ(client_->pool()->used_bytes(), 0U);
}

TEST_P(DataWriterTest, AnInterruptedStageStopsItsThreads) {
  const State state(7);
  auto writer = DataWriter::begin(client_, "a/b/file", *layout_of(state), {.part_bytes = kPart});
  // Memory that others hold: staging waits until it is interrupted.
  Slab held = *client_->pool()->try_acquire(kMemory - (kPart / 2));
  EXPECT_THROW(static_cast<void>((*writer)->stage(state.sources(), [] { throw 1; })), int);
}

TEST_P(DataWriterTest, DamageIsFoundAndNamed) {
  const State state(11);
  auto file = write(state);
  ASSERT_TRUE(file);
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 20; ++round) {
    DataFile other = *file;
    std::size_t piece = 0;
    while (other.sums[piece].empty()) ++piece;
    const std::size_t hurt = piece + random() % (other.sums.size() - piece);
    auto& sums = other.sums[hurt];
    if (sums.empty()) continue;
    const std::size_t block = random() % sums.size();
    if (key_ != nullptr) {
      other.tags[hurt][block][random() % 16] ^= std::byte{1};
    } else {
      sums[block] ^= 1;
    }
    const Status status = read(state, other);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(std::string(status.message()), HasSubstr("a/b/file: bytes "));
  }
  EXPECT_EQ(verify_file(*client_, "a/b/file", file->size_bytes, file->crc32c ^ 1, no_pause_).code(),
            Code::kCorrupt);
}

TEST_P(DataWriterTest, BlocksThatOthersHaveReadAreProvedAndCopied) {
  std::vector<std::byte> piece(3 * kSumBlockBytes + 99);
  std::mt19937_64 random(test_seed());
  for (std::byte& byte : piece) byte = static_cast<std::byte>(random());
  std::vector<std::uint32_t> sums;
  for (std::uint64_t at = 0; at < piece.size(); at += kSumBlockBytes)
    sums.push_back(
        crc32c(std::span(piece).subspan(at, std::min(kSumBlockBytes, piece.size() - at))));
  std::vector<std::byte> back(piece.size());
  const WantedBox box{.place = {4096, piece.size()},
                      .sums = sums,
                      .element_bytes = 1,
                      .shape = {piece.size()},
                      .start = {0},
                      .count = {piece.size()},
                      .to = back.data(),
                      .to_strides_bytes = {1}};
  const auto held = [&](std::uint64_t first, std::uint64_t end) {
    const std::uint64_t from = first * kSumBlockBytes;
    const std::uint64_t to = std::min(end * kSumBlockBytes, piece.size());
    return HeldBlocks{0, first, std::span(piece).subspan(from, to - from)};
  };
  const std::vector<HeldBlocks> all = {held(2, 4), held(0, 2)};
  ASSERT_TRUE(copy_blocks("file", {&box, 1}, all).ok());
  EXPECT_EQ(back, piece);
  piece[2 * kSumBlockBytes] ^= std::byte{1};
  const Status status = copy_blocks("file", {&box, 1}, all);
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(std::string(status.message()), HasSubstr("file: bytes 36864 to 53248 do not match"));
  const HeldBlocks outside{0, 3, std::span(piece).first(100)};
  EXPECT_EQ(copy_blocks("file", {&box, 1}, {&outside, 1}).code(), Code::kInvalidArgument);
}

TEST_P(DataWriterTest, AStoreThatDropsOrChangesAPartFailsTheSave) {
  if (is_file()) GTEST_SKIP() << "parts go to the disk without the store";
  const State state(13);
  for (const auto fault :
       {BadStore::Fault::kZeroedPart, BadStore::Fault::kFlippedBit, BadStore::Fault::kFailedPart}) {
    for (const int part : {0, 3, 9}) {
      plan_->fault = fault;
      plan_->parts_before = part;
      auto file = write(state);
      ASSERT_FALSE(file);
      EXPECT_TRUE(list_all(client_->store(), "")->empty());
      EXPECT_EQ(client_->pool()->used_bytes(), 0U);
    }
  }
  plan_->fault = BadStore::Fault::kNone;
  EXPECT_TRUE(write(state).has_value());
}

TEST_P(DataWriterTest, FilesAreCopiedWhenTheyAreWhole) {
  const State state(17);
  auto file = write(state);
  ASSERT_TRUE(file);
  TemporaryDirectory elsewhere;
  for (const std::string& url : {std::string("memory://elsewhere"), elsewhere.path()}) {
    StoreOptions options;
    options.url = url;
    auto to = *StoreClient::wrap(*open_store(options, {}), kMemory);
    const auto copy = [&](std::uint32_t sum) {
      return copy_file(*client_, "a/b/file", to, "c/copy", file->size_bytes, sum,
                       {.part_bytes = kPart}, no_pause_);
    };
    EXPECT_EQ(copy(file->crc32c ^ 1).error().code(), Code::kCorrupt);
    EXPECT_TRUE(list_all(to->store(), "")->empty());
    auto copied = copy(file->crc32c);
    ASSERT_TRUE(copied) << copied.error().message();
    EXPECT_TRUE(verify_file(*to, "c/copy", file->size_bytes, file->crc32c, no_pause_).ok());
    EXPECT_EQ(client_->pool()->used_bytes(), 0U);
  }
}

TEST_P(DataWriterTest, PartsThatDoNotFitTheMemoryAreRefused) {
  const State state(1);
  auto writer = DataWriter::begin(client_, "k", *layout_of(state), {.part_bytes = 2 * kMemory});
  ASSERT_FALSE(writer);
  EXPECT_THAT(std::string(writer.error().message()), HasSubstr("raise memory="));
}

TEST_P(DataWriterTest, SmallObjectsAreThereOnce) {
  ASSERT_TRUE(write_small(*client_, "steps/1", "first", true, no_pause_));
  EXPECT_EQ(write_small(*client_, "steps/1", "second", true, no_pause_).error().code(),
            Code::kChanged);
  ASSERT_TRUE(write_small(*client_, "steps/1", "third", false, no_pause_));
  std::string back(5, ' ');
  ASSERT_TRUE(
      client_->fetch("steps/1", {}, 0, std::as_writable_bytes(std::span(back)), no_pause_).ok());
  EXPECT_EQ(back, "third");
}

TEST_P(DataWriterTest, WhatHasNotChangedIsKnownAgain) {
  State state(test_seed());
  const FingerprintKey key{std::byte{7}};
  auto file = write(state, {.part_bytes = kPart, .copy_threads = 3, .fingerprint_key = key});
  ASSERT_TRUE(file) << file.error().message();
  std::vector<WrittenPiece> pieces;
  for (std::size_t i = 0; i < state.values.size(); ++i)
    pieces.push_back({state.values[i].size(), file->sums[i], file->fingerprints[i]});
  const auto changed = [&](const FingerprintKey& by) {
    std::vector<const std::byte*> addresses;
    for (const auto& value : state.values) addresses.push_back(value.data());
    const auto unchanged = find_unchanged(addresses, pieces, by, 3, no_pause_);
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!(*unchanged)[i]) numbers.push_back(i);
    }
    return numbers;
  };
  EXPECT_TRUE(changed(key).empty());
  std::mt19937_64 random(test_seed());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (state.values[i].empty()) continue;
    std::byte& byte = state.values[i][random() % state.values[i].size()];
    const auto flip = static_cast<std::byte>(1U << (random() % 8));
    byte ^= flip;
    EXPECT_EQ(changed(key), std::vector{i});
    byte ^= flip;
  }
  // Sums alone do not make it: under another key nothing that has bytes is known.
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!state.values[i].empty()) all.push_back(i);
  }
  EXPECT_EQ(changed(FingerprintKey{}), all);
}

INSTANTIATE_TEST_SUITE_P(Stores, DataWriterTest,
                         ::testing::Values("memory", "file", "memory, encrypted", "file, encrypted",
                                           "memory, compressed", "file, compressed",
                                           "memory, compressed, encrypted"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::erase_if(name, [](char c) { return c == ',' || c == ' '; });
                           return name;
                         });

/// What lies in the file.
class StoredDataTest : public DataWriterTest {
 protected:
  std::string content(const DataFile& file) {
    std::string out(file.size_bytes, '\0');
    const auto bytes = std::as_writable_bytes(std::span(out));
    EXPECT_TRUE(client_->fetch("a/b/file", {}, 0, bytes, no_pause_).ok());
    return out;
  }
  void replace(const std::string& content) {
    std::ofstream(directory_.path() + "/below/a/b/file", std::ios::binary) << content;
  }
};

class SealedDataTest : public StoredDataTest {};

TEST_P(SealedDataTest, TheFileShowsNoneOfItsBytesAndIsNoSafetensorsFile) {
  const State state(3);
  auto file = write(state);
  ASSERT_TRUE(file) << file.error().message();
  const std::string all = content(*file);
  EXPECT_EQ(all.find("data_offsets"), std::string::npos);
  for (const auto& value : state.values) {
    if (value.size() < 64) continue;
    const std::string_view part(reinterpret_cast<const char*>(value.data()), 64);
    EXPECT_EQ(all.find(part), std::string::npos);
  }
  EXPECT_GT(load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(all.data())), 100'000'000U);
  EXPECT_NE(write(state)->crc32c, file->crc32c) << "the same bytes again, under another salt";
}

TEST_P(SealedDataTest, AFileOfAnotherKeySaysSo) {
  const State state(3);
  auto file = write(state);
  ASSERT_TRUE(file);
  const auto own = std::exchange(key_, key_of(2));
  const Status other = read(state, *file);
  EXPECT_EQ(other.code(), Code::kCorrupt);
  EXPECT_THAT(std::string(other.message()), HasSubstr(own->id()));
  EXPECT_THAT(std::string(other.message()), HasSubstr(key_->id()));
}

TEST_P(SealedDataTest, ForgedAndMovedBlocksAreSeen) {
  const State state(5);
  auto file = write(state);
  ASSERT_TRUE(file);
  std::size_t piece = 0;
  while (state.values[piece].size() < 2 * kSumBlockBytes) ++piece;
  const std::uint64_t first = layout_.places()[piece].offset_bytes;
  const std::string good = content(*file);
  std::string changed = good;
  changed[first] = static_cast<char>(changed[first] ^ 1);
  replace(changed);
  file->etag.clear();
  EXPECT_EQ(read(state, *file).code(), Code::kCorrupt);
  // Two blocks in each other's place, with their tags.
  std::string moved = good;
  std::swap_ranges(moved.begin() + static_cast<long>(first),
                   moved.begin() + static_cast<long>(first + kSumBlockBytes),
                   moved.begin() + static_cast<long>(first + kSumBlockBytes));
  DataFile swapped = *file;
  std::swap(swapped.tags[piece][0], swapped.tags[piece][1]);
  replace(moved);
  EXPECT_EQ(read(state, swapped).code(), Code::kCorrupt);
  replace(good);
  EXPECT_TRUE(read(state, *file).ok());
}

INSTANTIATE_TEST_SUITE_P(Stores, SealedDataTest, ::testing::Values("file, encrypted"),
                         [](const auto&) { return std::string("file"); });

class CompressedDataTest : public StoredDataTest {
 protected:
  /// Rows of 64 bytes, four blocks, of which the first stays as it is.
  static State four_blocks() {
    State state(3, 0);
    state.pieces.push_back({"t", "F32", {1024, 16}});
    std::mt19937_64 random(test_seed());
    std::vector<std::byte>& value = state.values.emplace_back(4 * kSumBlockBytes);
    for (std::size_t i = 0; i < value.size(); ++i)
      value[i] = static_cast<std::byte>(i < kSumBlockBytes ? random() : i / 1000);
    return state;
  }
  /// Some rows of it.
  Status read_rows(const State& state, const DataFile& file, std::uint64_t first,
                   std::uint64_t count) {
    std::vector<std::byte> back(count * 64);
    const WantedBox box{.place = file.places[0],
                        .sums = file.sums[0],
                        .tags = file.tags[0],
                        .stored_bytes = file.stored_bytes[0],
                        .element_bytes = 4,
                        .shape = {1024, 16},
                        .start = {first, 0},
                        .count = {count, 16},
                        .to = back.data(),
                        .to_strides_bytes = {64, 4}};
    HEADRACE_TRY_ASSIGN(totals_,
                        read_boxes(*client_, "a/b/file", {}, {&box, 1}, key_.get(), no_pause_));
    const auto wanted = std::span(state.values[0]).subspan(first * 64, count * 64);
    return std::ranges::equal(back, wanted) ? Status() : Status(Code::kInternal, "other bytes");
  }
};

TEST_P(CompressedDataTest, ItIsNoSafetensorsFileAndTheSameEachTime) {
  const State state(test_seed());
  auto file = write(state, {.part_bytes = kPart, .copy_threads = 3});
  ASSERT_TRUE(file) << file.error().message();
  const std::string all = content(*file);
  EXPECT_GT(load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(all.data())), 100'000'000U);
  auto again = write(state, {.part_bytes = 3 * kPart, .copy_threads = 1});
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(content(*again) == all, key_ == nullptr) << "whatever the parts; but for another salt";
}

TEST_P(CompressedDataTest, OnlyTheBlocksOfABoxAreRead) {
  const State state = four_blocks();
  auto file = write(state);
  ASSERT_TRUE(file) << file.error().message();
  const auto& stored = file->stored_bytes[0];
  ASSERT_EQ(stored.size(), 4U);
  EXPECT_EQ(stored[0], kSumBlockBytes) << "noise is stored as it is";
  for (const std::size_t block : {1U, 2U, 3U}) EXPECT_LT(stored[block], kSumBlockBytes / 10);
  const std::uint64_t page_bytes = key_ == nullptr ? 0 : 40;
  ASSERT_TRUE(read_rows(state, *file, 520, 3).ok());
  EXPECT_EQ(totals_.bytes, stored[2] + page_bytes);
  ASSERT_TRUE(read_rows(state, *file, 255, 2).ok());
  EXPECT_EQ(totals_.bytes, stored[0] + stored[1] + page_bytes);
}

TEST_P(CompressedDataTest, DamagedBlocksAreFound) {
  const State state = four_blocks();
  auto file = write(state);
  ASSERT_TRUE(file);
  const std::string good = content(*file);
  const std::uint64_t second = file->places[0].offset_bytes + file->stored_bytes[0][0];
  int found_count = 0;
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 50; ++round) {
    std::string changed = good;
    char& byte = changed[second + random() % file->stored_bytes[0][1]];
    byte = static_cast<char>(byte ^ (1 << (random() % 8)));
    replace(changed);
    EXPECT_EQ(verify_file(*client_, "a/b/file", good.size(), file->crc32c, no_pause_).code(),
              Code::kCorrupt);
    EXPECT_TRUE(read_rows(state, *file, 600, 1).ok());
    const Status status = read_rows(state, *file, 300, 1);
    if (status.ok()) continue;  // Some bits of a frame mean nothing: what was read was right.
    ++found_count;
    EXPECT_EQ(status.code(), Code::kCorrupt) << status.message();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("a/b/file: bytes " + std::to_string(second) + " to "));
  }
  EXPECT_GT(found_count, 40);
}

TEST_P(CompressedDataTest, LengthsThatCannotBeAreRefused) {
  const State state = four_blocks();
  auto file = write(state);
  ASSERT_TRUE(file);
  auto& stored = file->stored_bytes[0];
  const auto good = stored;
  for (const int length : {0, 16385, 65535}) {
    stored[1] = static_cast<std::uint16_t>(length);
    EXPECT_EQ(read_rows(state, *file, 0, 1).code(), Code::kInvalidArgument);
  }
  stored = good;
  stored.pop_back();
  EXPECT_EQ(read_rows(state, *file, 0, 1).code(), Code::kInvalidArgument);
  // Lengths that could be, and are not.
  stored = good;
  std::swap(stored[0], stored[1]);
  EXPECT_EQ(read_rows(state, *file, 0, 1).code(), Code::kCorrupt);
  EXPECT_EQ(read_rows(state, *file, 300, 1).code(), Code::kCorrupt);
}

TEST_P(CompressedDataTest, TwoPartsOfMemoryAreEnoughAndOneIsNot) {
  const State state(test_seed());
  StoreOptions options;
  options.url = directory_.path() + "/below";
  client_ = *StoreClient::wrap(*open_store(options, {}), 2 * kPart);
  for (const std::uint32_t threads : {1U, 4U}) {
    auto file = write(state, {.part_bytes = kPart, .copy_threads = threads});
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_LE(client_->pool()->peak_bytes(), 2 * kPart);
  }
  auto writer = DataWriter::begin(client_, "k", *layout_of(state), {.part_bytes = 2 * kPart});
  ASSERT_FALSE(writer);
  EXPECT_THAT(std::string(writer.error().message()), HasSubstr("raise memory="));
}

INSTANTIATE_TEST_SUITE_P(Stores, CompressedDataTest,
                         ::testing::Values("file, compressed", "file, compressed, encrypted"),
                         [](const auto& each) {
                           return std::string(each.index == 0 ? "plain" : "encrypted");
                         });

}  // namespace
}  // namespace headrace::checkpoint
