#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/fd.h"
#include "base/temporary_directory.h"
#include "tier/sealed_file.h"

namespace headrace::tier {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kChunk = 64 << 10;
constexpr std::size_t kSize = 3 * kChunk;

SealKey key_of(int first) { return SealKey(SealKey::Bytes{static_cast<std::byte>(first)}); }

std::vector<std::byte> content(char first) {
  std::vector<std::byte> out(kSize);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(static_cast<std::size_t>(first) + i / 16);
  return out;
}

ExtentInfo info_of(const std::string& url) {
  return {.name = {object_id("h:1", url, "e"), 0, kSize},
          .object_size_bytes = kSize,
          .url = url,
          .etag = "e"};
}

/// Files of an encrypted cache under the hands of somebody who has no key, and can make sums.
class SealedExtent : public ::testing::Test {
 protected:
  using File = std::vector<std::byte>;

  static File seal(const std::string& url, char first, const SealKey* key) {
    const auto data = content(first);
    return SealedFile(info_of(url), data, key).bytes();
  }
  std::string path() const { return directory_.path() + "/file"; }
  Fd write(const File& file) const {
    const Fd out(::open(path().c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    EXPECT_EQ(::write(out.get(), file.data(), file.size()), static_cast<ssize_t>(file.size()));
    return Fd(::open(path().c_str(), O_RDONLY));
  }
  std::string read(const File& file, const SealKey* key) {
    const Fd fd = write(file);
    std::vector<std::byte> out(kSize);
    std::uint64_t size = 0;
    const Status status = read_extent(fd.get(), info_of("s3://b/k").name, 0, out, size, key);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::kCorrupt);
      return std::string(status.message());
    }
    return out == content('a') ? "right" : "wrong bytes";
  }
  bool sums_match(const File& file) {
    const Fd fd = write(file);
    std::vector<std::byte> scratch(kSize);
    return check_sums(fd.get(), info_of("s3://b/k").name, scratch).ok();
  }
  static void set_sum(File& file) {
    store_le<std::uint32_t>(file.data() + 68, 0);
    store_le<std::uint32_t>(file.data() + 68, crc32c(std::span(file).first(kHeaderBytes)));
  }
  static void swap_ranges(File& file, std::size_t a, std::size_t b, std::size_t size) {
    std::swap_ranges(file.begin() + static_cast<long>(a),
                     file.begin() + static_cast<long>(a + size),
                     file.begin() + static_cast<long>(b));
  }

  const SealKey key_ = key_of(1), other_key_ = key_of(2);
  const File file_ = seal("s3://b/k", 'a', &key_);
  TemporaryDirectory directory_;
  // Of a file of three chunks: sums, id of the key, salt, the header's tag, the chunks' tags.
  static constexpr std::size_t kSums = 72, kSalt = kSums + 3 * 4 + 8, kTag = kSalt + 16,
                               kTags = kTag + 16;
};

TEST_F(SealedExtent, SaysNothingOfItsBytes) {
  const File plain = seal("s3://b/k", 'a', nullptr);
  const auto data = content('a');
  const auto has = [](const File& file, std::span<const std::byte> part) {
    return std::search(file.begin(), file.end(), part.begin(), part.end()) != file.end();
  };
  EXPECT_TRUE(has(plain, std::span(data).first(64)));
  for (std::size_t at = 0; at + 64 <= data.size(); at += 4096)
    EXPECT_FALSE(has(file_, std::span(data).subspan(at, 64)));
  EXPECT_NE(file_, seal("s3://b/k", 'a', &key_)) << "the same bytes again";
}

TEST_F(SealedExtent, OpensWithItsKeyAlone) {
  EXPECT_EQ(read(file_, &key_), "right");
  EXPECT_THAT(read(file_, &other_key_), HasSubstr("of another key"));
  EXPECT_THAT(read(file_, nullptr), HasSubstr("encrypted"));
  EXPECT_THAT(read(seal("s3://b/k", 'a', nullptr), &key_), HasSubstr("not encrypted"));
}

TEST_F(SealedExtent, AForgedFileIsSeen) {
  const File other = seal("s3://b/k", 'b', &key_);
  const std::vector<std::function<void(File&)>> forgeries = {
      [](File& file) { file[kHeaderBytes + 70'000] ^= std::byte{1}; },
      // The second and the third chunk, with all that belongs to them.
      [](File& file) {
        swap_ranges(file, kHeaderBytes + kChunk, kHeaderBytes + 2 * kChunk, kChunk);
        swap_ranges(file, kTags + 16, kTags + 32, 16);
      },
      // A chunk of another writing of the same extent, with its tag.
      [&](File& file) {
        std::memcpy(file.data() + kHeaderBytes, other.data() + kHeaderBytes, kChunk);
        std::memcpy(file.data() + kTags, other.data() + kTags, 16);
      },
      [](File& file) { file[kSalt] ^= std::byte{1}; },
      [](File& file) { file[kTag] ^= std::byte{1}; },
      [](File& file) { file[48] ^= std::byte{1}; },                   // the object's size
      [](File& file) { file[kTags + 3 * 16] = std::byte{'f'}; },      // its ETag
      [](File& file) { file[kTags + 3 * 16 + 3] = std::byte{'f'}; },  // its URL
      [](File& file) { file[kHeaderBytes - 1] = std::byte{'f'}; },    // behind all that is said
  };
  for (std::size_t i = 0; i < forgeries.size(); ++i) {
    File file = file_;
    forgeries[i](file);
    for (std::size_t chunk = 0; chunk < 3; ++chunk) {
      const auto bytes = std::span(file).subspan(kHeaderBytes + chunk * kChunk, kChunk);
      store_le<std::uint32_t>(file.data() + kSums + 4 * chunk, crc32c(bytes));
    }
    set_sum(file);
    EXPECT_TRUE(sums_match(file)) << i << ": the sums are those of the forged file";
    EXPECT_THAT(read(file, &key_), ::testing::AnyOf(HasSubstr("changed"), HasSubstr("tag"))) << i;
  }
}

TEST_F(SealedExtent, ItsSumsTellDamageWithoutTheKey) {
  EXPECT_TRUE(sums_match(file_));
  for (const std::size_t at : {std::size_t{20}, kHeaderBytes, kHeaderBytes + kSize - 1}) {
    File file = file_;
    file[at] ^= std::byte{1};
    EXPECT_FALSE(sums_match(file)) << at;
  }
  EXPECT_FALSE(sums_match(seal("s3://b/k", 'a', nullptr)));
  File file = file_;
  file.resize(file.size() - kHeaderBytes);
  EXPECT_FALSE(sums_match(file));
}

}  // namespace
}  // namespace headrace::tier
