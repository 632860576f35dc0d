#include "checkpoint/block_packer.h"

#include <zstd.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "base/endian.h"
#include "base/test_seed.h"
#include "gtest/gtest.h"

namespace headrace::checkpoint {
namespace {

using Bytes = std::vector<std::byte>;

Bytes pack(const Bytes& plain, std::uint32_t planes) {
  std::array<std::byte, kPackRoomBytes> room;
  const std::size_t count = pack_block(plain, planes, room);
  return {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(count)};
}

Bytes weights(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  Bytes out(4 * count);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    std::memcpy(&out[4 * i], &value, 4);
  }
  return out;
}

Bytes noise(std::uint64_t seed, std::size_t size) {
  std::mt19937_64 random(seed);
  Bytes out(size);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

TEST(BlockPacker, WhatIsShorterComesBack) {
  for (const std::uint32_t planes : {1U, 2U, 4U, 8U}) {
    for (const std::size_t elements : {128U, 129U, 1000U, 2047U, 2048U}) {
      Bytes plain(elements * 8);
      for (std::size_t i = 0; i < elements; ++i) store_le<std::uint64_t>(&plain[8 * i], i * i);
      const Bytes stored = pack(plain, planes);
      ASSERT_GT(stored.size(), 0U) << planes << " " << elements;
      ASSERT_LT(stored.size(), plain.size());
      Bytes back(plain.size());
      ASSERT_TRUE(unpack_block(stored, back));
      EXPECT_EQ(back, plain);
    }
  }
}

TEST(BlockPacker, WhatIsNotShorterIsToBeStoredAsItIs) {
  for (const std::size_t size : {0U, 1U, 4U, 8U, 100U, 16384U})
    EXPECT_TRUE(pack(noise(test_seed(), size - size % 4), size < 4 ? 1 : 4).empty()) << size;
}

TEST(BlockPacker, WeightsAreShorterApartThanTogether) {
  const Bytes plain = weights(test_seed(), 4096);
  const std::size_t apart = pack(plain, 4).size();
  EXPECT_GT(apart, 0U);
  EXPECT_LT(apart, plain.size() * 88 / 100);
  const std::size_t together = pack(plain, 1).size();
  EXPECT_TRUE(together == 0 || together > plain.size() * 9 / 10) << together;
}

TEST(BlockPacker, PlanesAreThoseOfTheNumbers) {
  EXPECT_EQ(plane_count("BF16"), 2U);
  EXPECT_EQ(plane_count("F32"), 4U);
  EXPECT_EQ(plane_count("F64"), 8U);
  EXPECT_EQ(plane_count("C64"), 4U);
  EXPECT_EQ(plane_count("I64"), 8U);
  EXPECT_EQ(plane_count("F8_E4M3"), 1U);
  EXPECT_EQ(plane_count("BOOL"), 1U);
  EXPECT_EQ(plane_count("F4"), 1U);
}

TEST(BlockPacker, BrokenBlocksAreRefused) {
  const Bytes plain = weights(3, 4096);
  const Bytes good = pack(plain, 4);
  Bytes back(plain.size());
  const auto is_refused = [&](const Bytes& stored) { return !unpack_block(stored, back); };
  ASSERT_FALSE(is_refused(good));
  EXPECT_TRUE(is_refused({}));
  for (std::size_t size = 1; size < good.size(); size += 37)
    EXPECT_TRUE(is_refused(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))));
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_TRUE(is_refused(longer));
  for (const int planes : {0, 3, 5, 16, 255}) {
    Bytes other = good;
    other[0] = static_cast<std::byte>(planes);
    EXPECT_TRUE(is_refused(other)) << planes;
  }
  for (const int size : {0, 1, 4097, 65535}) {
    Bytes other = good;
    store_le<std::uint16_t>(&other[1], static_cast<std::uint16_t>(size));
    EXPECT_TRUE(is_refused(other)) << size;
  }
  Bytes short_room(plain.size() - 4);
  EXPECT_FALSE(unpack_block(good, short_room));
  Bytes large_room(kSumBlockBytes + 4);
  EXPECT_FALSE(unpack_block(good, large_room));
}

TEST(BlockPacker, AFrameThatWouldInflateToMoreWritesNothingBeyond) {
  const Bytes zeros(1 << 20);
  Bytes bomb(1000);
  bomb.resize(ZSTD_compress(bomb.data(), bomb.size(), zeros.data(), zeros.size(), 3));
  Bytes stored(3 + bomb.size());
  stored[0] = std::byte{1};
  store_le<std::uint16_t>(&stored[1], static_cast<std::uint16_t>(bomb.size()));
  std::memcpy(&stored[3], bomb.data(), bomb.size());
  Bytes room(kSumBlockBytes, std::byte{7});
  EXPECT_FALSE(unpack_block(stored, room));
  EXPECT_EQ(room, Bytes(kSumBlockBytes, std::byte{7}));
}

TEST(BlockPacker, AnyByteMayBeWrong) {
  const Bytes plain = weights(5, 1024);
  const Bytes good = pack(plain, 4);
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 3000; ++round) {
    Bytes other = good;
    other[random() % other.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    Bytes back(plain.size());
    // It may be another block; what it must not do is to write elsewhere (ASan).
    static_cast<void>(unpack_block(other, back));
  }
}

}  // namespace
}  // namespace headrace::checkpoint
