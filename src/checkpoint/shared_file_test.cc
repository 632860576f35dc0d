#include <algorithm>
#include <array>
#include <random>

#include "base/crc32c.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"
#include "gmock/gmock.h"
#include "headrace/checkpoint.h"

namespace headrace::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMemory = 1 << 20;
constexpr std::uint64_t kPart = 64 << 10;

/// Two processes' clients of one place, and a file of random bytes.
class SharedFileTest : public ::testing::TestWithParam<const char*> {
 protected:
  SharedFileTest() : bytes_(5 * kPart + 123) {
    std::mt19937_64 random(test_seed());
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    StoreOptions options;
    options.url = std::string_view(GetParam()) == "file"
                      ? directory_.path() + "/below"
                      : "memory://shared-" + std::to_string(count_++);
    clients_[0] = *StoreClient::wrap(*open_store(options, {}), kMemory);
    clients_[1] = *StoreClient::wrap(*clients_[0]->store().new_handle(), kMemory);
  }

  Result<std::unique_ptr<SharedFile>> open(std::size_t process, const std::string& joins = {}) {
    return SharedFile::open(
        clients_[process],
        {.key = "a/b/file", .size_bytes = bytes_.size(), .part_bytes = kPart, .joins = joins});
  }
  /// A part of several runs.
  Status put(SharedFile& file, std::uint32_t part) {
    const std::uint64_t end = std::min<std::uint64_t>(bytes_.size() - part * kPart, kPart);
    std::vector<PartRun> runs;
    for (std::uint64_t at = 0; at < end; at += 10'000) {
      runs.push_back({at, std::min<std::uint64_t>(10'000, end - at), &bytes_[part * kPart + at]});
    }
    return file.put(part, runs, no_pause_);
  }
  bool is_absent() { return list_all(clients_[0]->store(), "")->empty(); }

  const Pause no_pause_ = [] {};
  TemporaryDirectory directory_;
  std::vector<std::byte> bytes_;
  std::array<std::shared_ptr<StoreClient>, 2> clients_;
  static inline int count_ = 0;
};

TEST_P(SharedFileTest, PartsOfTwoProcessesAreOneFile) {
  auto first = *open(0);
  auto second = *open(1, first->token());
  for (std::uint32_t part = 6; part-- > 0;)
    ASSERT_TRUE(put(part % 2 == 0 ? *first : *second, part).ok());
  auto parts = *first->settle(no_pause_);
  EXPECT_EQ(parts.size(), 3U);
  EXPECT_TRUE(is_absent());
  const auto others = *second->settle(no_pause_);
  parts.insert(parts.end(), others.begin(), others.end());
  second.reset();
  auto etag = first->publish(parts, no_pause_);
  ASSERT_TRUE(etag) << etag.error().message();
  EXPECT_TRUE(verify_file(*clients_[1], "a/b/file", bytes_.size(), crc32c(bytes_), no_pause_).ok());
  for (const auto& client : clients_) EXPECT_EQ(client->pool()->used_bytes(), 0U);
}

TEST_P(SharedFileTest, AMissingPartOrADoubleOneIsAnError) {
  auto first = *open(0);
  auto second = *open(1, first->token());
  for (std::uint32_t part = 1; part < 6; ++part) ASSERT_TRUE(put(*first, part).ok());
  auto parts = *first->settle(no_pause_);
  EXPECT_THAT(std::string(first->publish(parts, no_pause_).error().message()),
              HasSubstr("nobody has written all of part 0"));
  parts.push_back(parts.back());
  EXPECT_THAT(std::string(first->publish(parts, no_pause_).error().message()),
              HasSubstr("there twice"));
  EXPECT_TRUE(is_absent());
}

TEST_P(SharedFileTest, WhatTheStoreHasIsComparedWithWhatWasCopied) {
  auto first = *SharedFile::open(clients_[0], {.key = "a/b/file",
                                               .size_bytes = bytes_.size(),
                                               .part_bytes = kPart,
                                               .check = WrittenCheck::kReadBack});
  for (std::uint32_t part = 0; part < 6; ++part) ASSERT_TRUE(put(*first, part).ok());
  auto parts = *first->settle(no_pause_);
  parts[3].crc32c ^= 1;
  EXPECT_EQ(first->publish(parts, no_pause_).error().code(), Code::kCorrupt);
  EXPECT_TRUE(is_absent());
}

TEST_P(SharedFileTest, PartsThatAreNotWhatTheyShouldBeAreRefused) {
  auto file = *open(0);
  const std::array holes = {PartRun{0, 10, bytes_.data()}, PartRun{11, kPart - 11, bytes_.data()}};
  const std::array little = {PartRun{0, 10, bytes_.data()}};
  EXPECT_EQ(file->put(0, holes, no_pause_).code(), Code::kInternal);
  EXPECT_EQ(file->put(0, little, no_pause_).code(), Code::kInternal);
  EXPECT_EQ(put(*file, 0).code(), Code::kOk);
}

TEST_P(SharedFileTest, WhatIsGivenUpLeavesNothing) {
  {
    auto first = *open(0);
    auto second = *open(1, first->token());
    ASSERT_TRUE(put(*first, 0).ok());
    ASSERT_TRUE(put(*second, 1).ok());
  }
  EXPECT_TRUE(is_absent());
}

INSTANTIATE_TEST_SUITE_P(Stores, SharedFileTest, ::testing::Values("memory", "file"));

}  // namespace
}  // namespace headrace::checkpoint
