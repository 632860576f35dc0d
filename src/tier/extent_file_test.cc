#include "tier/extent_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/random.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"
#include "tier/folder.h"
#include "tier/sealed_file.h"

namespace headrace::tier {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

std::vector<std::byte> random_bytes(Random& random, std::size_t size) {
  std::vector<std::byte> out(size);
  for (std::byte& b : out) b = static_cast<std::byte>(random.next());
  return out;
}

/// As it is, and encrypted.
class ExtentFile : public ::testing::TestWithParam<bool> {
 protected:
  ExtentName publish(std::span<const std::byte> data, std::uint64_t offset = 12) {
    const ExtentInfo info{.name = {object_id("h:1", "s3://b/k", "\"e\""), offset, data.size()},
                          .object_size_bytes = 1 << 30,
                          .url = "s3://b/k",
                          .etag = "\"e\""};
    EXPECT_TRUE(publish_extent(directory_fd_.get(), info.name, SealedFile(info, data, key())).ok());
    return info.name;
  }
  std::string path(const ExtentName& name) const {
    return directory_.path() + "/" + file_name(name);
  }
  Status read(const ExtentName& name, std::uint64_t from, std::span<std::byte> out) {
    const Fd fd(::open(path(name).c_str(), O_RDONLY));
    std::uint64_t object_size = 0;
    const Status status = read_extent(fd.get(), name, from, out, object_size, key());
    if (status.ok()) {
      EXPECT_EQ(object_size, std::uint64_t{1} << 30);
    }
    return status.clone();
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    EXPECT_TRUE(visit_names(directory_fd_.get(), [&](const char* name) {
                  if (name != std::string_view(".") && name != std::string_view(".."))
                    out.emplace_back(name);
                }).ok());
    return out;
  }

  /// What is on the disk leaves the page cache.
  void forget_pages(const ExtentName& name) {
    const Fd fd(::open(path(name).c_str(), O_RDONLY));
    ::fdatasync(fd.get());
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }

  const SealKey* key() const { return GetParam() ? &key_ : nullptr; }

  const SealKey key_{SealKey::Bytes{std::byte{7}}};
  TemporaryDirectory directory_;
  Fd directory_fd_{::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY)};
};

TEST_P(ExtentFile, GivesEveryRangeBack) {
  Random random(test_seed());
  struct alignas(4096) Page {
    std::array<std::byte, 4096> bytes;
  };
  std::vector<Page> pages((41 << 20) / 4096);
  const std::span<std::byte> memory(pages.front().bytes.data(), pages.size() * 4096);
  for (const std::size_t size : std::initializer_list<std::size_t>{1, 4095, 65'536, 65'537, 300'000,
                                                                   262'144, 5'000'000, 40 << 20}) {
    const auto data = random_bytes(random, size);
    const ExtentName name = publish(data);
    for (int i = 0; i < 20; ++i) {
      const std::size_t from = i == 0 ? 0 : random.below(size);
      const std::size_t length = i == 0 ? size : 1 + random.below(size - from);
      // Every other one at a page, as slabs are.
      const std::size_t shift = i % 2 == 0 ? 0 : 1 + random.below(4095);
      if (i % 3 == 0) forget_pages(name);
      const auto out = std::span(memory).subspan(shift, length);
      const Status status = read(name, i % 5 == 0 ? from / 4096 * 4096 : from, out);
      ASSERT_TRUE(status.ok()) << status.message();
      const auto begin = data.begin() + static_cast<long>(i % 5 == 0 ? from / 4096 * 4096 : from);
      ASSERT_TRUE(std::equal(out.begin(), out.end(), begin))
          << size << ": " << from << " + " << length;
    }
  }
}

TEST_P(ExtentFile, SaysWhatItIs) {
  const ExtentName name = publish(std::vector<std::byte>(1000));
  const Fd fd(::open(path(name).c_str(), O_RDONLY));
  auto info = read_info(fd.get(), &name);
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->name, name);
  EXPECT_EQ(info->url, "s3://b/k");
  EXPECT_EQ(info->etag, "\"e\"");
}

TEST_P(ExtentFile, CutsLongNamesOff) {
  const std::vector<std::byte> data(30 << 20);
  const ExtentInfo info{.name = {{1, 2}, 0, data.size()},
                        .object_size_bytes = 0,
                        .url = std::string(5000, 'u'),
                        .etag = "e"};
  ASSERT_TRUE(publish_extent(directory_fd_.get(), info.name, SealedFile(info, data, key())).ok());
  const Fd fd(::open(path(info.name).c_str(), O_RDONLY));
  auto read = read_info(fd.get(), &info.name);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->etag, "e");
  EXPECT_GT(read->url.size(), 1000U);
  EXPECT_TRUE(info.url.starts_with(read->url));
}

TEST_P(ExtentFile, EveryFlippedBitIsSeen) {
  Random random(test_seed());
  const auto data = random_bytes(random, 70'000);
  const ExtentName name = publish(data);
  struct stat info {};
  ASSERT_EQ(::stat(path(name).c_str(), &info), 0);
  ASSERT_EQ(static_cast<std::size_t>(info.st_size), file_bytes(name));
  const Fd fd(::open(path(name).c_str(), O_RDWR));
  std::vector<std::byte> out(data.size());
  for (int i = 0; i < 500; ++i) {
    // Half of them in the header.
    const auto at =
        static_cast<off_t>(random.below(i % 2 == 0 ? kHeaderBytes : kHeaderBytes + data.size()));
    std::byte original{};
    ASSERT_EQ(::pread(fd.get(), &original, 1, at), 1);
    const std::byte flipped = original ^ static_cast<std::byte>(1U << random.below(8));
    ASSERT_EQ(::pwrite(fd.get(), &flipped, 1, at), 1);
    EXPECT_EQ(read(name, 0, out).code(), Code::kCorrupt) << "at " << at;
    ASSERT_EQ(::pwrite(fd.get(), &original, 1, at), 1);
  }
  EXPECT_TRUE(read(name, 0, out).ok());
}

TEST_P(ExtentFile, AFileThatIsCutOffIsCorrupt) {
  const ExtentName name = publish(std::vector<std::byte>(200'000));
  std::vector<std::byte> out(200'000);
  for (const off_t size : {204'095, 100'000, 4097, 4096, 4095, 10, 0}) {
    ASSERT_EQ(::truncate(path(name).c_str(), size), 0);
    EXPECT_EQ(read(name, 0, out).code(), Code::kCorrupt) << size;
    EXPECT_EQ(read(name, 199'990, std::span(out).first(10)).code(), Code::kCorrupt) << size;
  }
}

TEST_P(ExtentFile, AFileUnderAnothersNameIsCorrupt) {
  const ExtentName name = publish(std::vector<std::byte>(100), 0);
  const ExtentName other = publish(std::vector<std::byte>(100), 100);
  ASSERT_EQ(::rename(path(name).c_str(), path(other).c_str()), 0);
  std::vector<std::byte> out(100);
  EXPECT_EQ(read(other, 0, out).code(), Code::kCorrupt);
}

TEST_P(ExtentFile, WhatIsThereStays) {
  const std::vector<std::byte> data(100, std::byte{1});
  const ExtentName name = publish(data);
  const ExtentInfo info{.name = name, .object_size_bytes = 0, .url = {}, .etag = {}};
  const std::vector<std::byte> other(100, std::byte{2});
  EXPECT_EQ(publish_extent(directory_fd_.get(), name, SealedFile(info, other, key())).code(),
            Code::kChanged);
  std::vector<std::byte> out(100);
  ASSERT_TRUE(read(name, 0, out).ok());
  EXPECT_EQ(out, data);
}

TEST_P(ExtentFile, WhereFilesNeedANameAnUnfinishedOneGoes) {
  const std::vector<std::byte> data(300'000, std::byte{1});
  const ExtentInfo info{.name = {{1, 2}, 0, data.size()},
                        .object_size_bytes = std::uint64_t{1} << 30,
                        .url = {},
                        .etag = {}};
  {
    auto extent = NewExtent::write(Fd(::dup(directory_fd_.get())),
                                   SealedFile(info, data, key()).parts(), false);
    ASSERT_TRUE(extent) << extent.error().message();
    EXPECT_THAT(names(), ElementsAre(StartsWith(kUnfinished)));
    EXPECT_TRUE(extent->publish(info.name, false).ok());
  }
  EXPECT_THAT(names(), ElementsAre(file_name(info.name)));
  std::vector<std::byte> out(data.size());
  ASSERT_TRUE(read(info.name, 0, out).ok());
  EXPECT_EQ(out, data);
}

TEST_P(ExtentFile, WhatIsNotPublishedLeavesNothing) {
  const ExtentInfo info{.name = {{1, 2}, 0, 5000}, .object_size_bytes = 0, .url = {}, .etag = {}};
  const SealedFile file(info, std::vector<std::byte>(5000), key());
  for (const bool is_nameless : {true, false})
    EXPECT_TRUE(NewExtent::write(Fd(::dup(directory_fd_.get())), file.parts(), is_nameless));
  EXPECT_THAT(names(), ElementsAre());
}

TEST_P(ExtentFile, BytesMayLieAnywhere) {
  Random random(test_seed());
  const auto memory = random_bytes(random, 300'100);
  std::vector<std::byte> bytes = memory;
  const std::span<std::byte> data = std::span(bytes).subspan(33, 300'000);
  const ExtentInfo info{.name = {{1, 2}, 0, data.size()},
                        .object_size_bytes = std::uint64_t{1} << 30,
                        .url = {},
                        .etag = {}};
  const SealedFile pages(info, data);  // For memory at a page.
  const FileParts parts{.pages = pages.parts().pages, .data = data};
  seal_extent(info, parts, key());
  auto extent = NewExtent::write(Fd(::dup(directory_fd_.get())), parts, true);
  ASSERT_TRUE(extent && extent->publish(info.name, false).ok());
  std::vector<std::byte> out(data.size());
  ASSERT_TRUE(read(info.name, 0, out).ok());
  EXPECT_TRUE(std::equal(out.begin(), out.end(), memory.begin() + 33));
}

TEST_P(ExtentFile, TryingForFilesWithoutANameLeavesNone) {
  NewExtent::can_be_nameless(directory_fd_.get());
  EXPECT_THAT(names(), ElementsAre());
}

INSTANTIATE_TEST_SUITE_P(Keys, ExtentFile, ::testing::Bool(), [](const auto& each) {
  return std::string(each.param ? "Encrypted" : "Plain");
});

TEST(ExtentNames, AreReadBackAndSpelledInOneWay) {
  Random random(test_seed());
  for (int i = 0; i < 1000; ++i) {
    const ExtentName name{{random.next() >> random.below(64), random.next()},
                          random.next() >> (1 + random.below(63)),
                          1 + (random.next() >> (2 + random.below(62)))};
    const auto read = parse_file_name(file_name(name));
    ASSERT_TRUE(read) << file_name(name);
    EXPECT_EQ(*read, name);
  }
  const std::string good = file_name({{1, 2}, 16, 5});
  for (const std::string& bad :
       {std::string(), good + "x", good + "-1", good.substr(1), good.substr(0, 33) + "010-5",
        good.substr(0, 33) + "10-0", good.substr(0, 33) + "10-", good.substr(0, 33) + "A-5",
        good.substr(0, 33) + "ffffffffffffffff-2", "." + good})
    EXPECT_FALSE(parse_file_name(bad)) << bad;
}

TEST(BucketNames, AreReadBackAndSpelledInOneWay) {
  for (std::uint32_t bucket = 0; bucket < kBucketCount; ++bucket)
    ASSERT_EQ(parse_bucket_name(bucket_name(bucket)), bucket);
  for (const char* bad : {"", "0a", "0A3", "00a3", "0x3", "-a3", ".a3", "ledger"})
    EXPECT_FALSE(parse_bucket_name(bad)) << bad;
}

TEST(ObjectIds, TellApartWhatDiffers) {
  const ObjectId id = object_id("h:1", "s3://b/k", "e");
  EXPECT_EQ(id, object_id("h:1", "s3://b/k", "e"));
  EXPECT_NE(id, object_id("h:2", "s3://b/k", "e"));
  EXPECT_NE(id, object_id("h:1", "s3://b/l", "e"));
  EXPECT_NE(id, object_id("h:1", "s3://b/k", "f"));
  EXPECT_NE(object_id("a", "bc", "d"), object_id("ab", "c", "d"));
}

}  // namespace
}  // namespace headrace::tier
