#include "shard/formats/arrayrecord/highway_hash.h"

#include <bit>
#include <cstring>

#include "base/endian.h"

namespace headrace::detail {
namespace {

using Lanes = std::array<std::uint64_t, 4>;

constexpr std::size_t kPacketBytes = 32;
constexpr Lanes kInit0{0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0, 0x13198a2e03707344,
                       0x243f6a8885a308d3};
constexpr Lanes kInit1{0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c, 0xbe5466cf34e90c6c,
                       0x452821e638d01377};

// The upper lane's and the lower lane's share of a byte permutation of both.
void zipper_merge_and_add(std::uint64_t v1, std::uint64_t v0, std::uint64_t& add1,
                          std::uint64_t& add0) {
  add0 += (((v0 & 0xff000000) | (v1 & 0xff00000000)) >> 24) |
          (((v0 & 0xff0000000000) | (v1 & 0xff000000000000)) >> 16) | (v0 & 0xff0000) |
          ((v0 & 0xff00) << 32) | ((v1 & 0xff00000000000000) >> 8) | (v0 << 56);
  add1 += (((v1 & 0xff000000) | (v0 & 0xff00000000)) >> 24) | (v1 & 0xff0000) |
          ((v1 & 0xff0000000000) >> 16) | ((v1 & 0xff00) << 24) | ((v0 & 0xff000000000000) >> 8) |
          ((v1 & 0xff) << 48) | (v0 & 0xff00000000000000);
}

class Hasher {
 public:
  explicit Hasher(const Lanes& key) : mul0_(kInit0), mul1_(kInit1) {
    for (std::size_t i = 0; i < 4; ++i) {
      v0_[i] = mul0_[i] ^ key[i];
      v1_[i] = mul1_[i] ^ std::rotl(key[i], 32);
    }
  }

  void update(const std::byte* packet) {
    Lanes lanes;
    std::memcpy(lanes.data(), packet, sizeof(lanes));
    update(lanes);
  }

  // The last bytes, fewer than a packet.
  void update_rest(std::span<const std::byte> rest) {
    const std::size_t size = rest.size();
    const std::size_t odd = size & 3;
    const std::size_t whole = size - odd;
    for (std::uint64_t& lane : v0_) lane += (std::uint64_t{size} << 32) + size;
    for (std::uint64_t& lane : v1_) {
      const auto low = std::rotl(static_cast<std::uint32_t>(lane), static_cast<int>(size));
      const auto high = std::rotl(static_cast<std::uint32_t>(lane >> 32), static_cast<int>(size));
      lane = std::uint64_t{high} << 32 | low;
    }
    std::array<std::byte, kPacketBytes> packet{};
    std::memcpy(packet.data(), rest.data(), whole);
    if ((size & 16) != 0) {
      std::memcpy(packet.data() + 28, rest.data() + size - 4, 4);
    } else if (odd != 0) {
      packet[16] = rest[whole];
      packet[17] = rest[whole + (odd >> 1)];
      packet[18] = rest[size - 1];
    }
    update(packet.data());
  }

  std::uint64_t finish() {
    for (int i = 0; i < 4; ++i) {
      update(Lanes{std::rotl(v0_[2], 32), std::rotl(v0_[3], 32), std::rotl(v0_[0], 32),
                   std::rotl(v0_[1], 32)});
    }
    return v0_[0] + v1_[0] + mul0_[0] + mul1_[0];
  }

 private:
  void update(const Lanes& lanes) {
    for (std::size_t i = 0; i < 4; ++i) {
      v1_[i] += mul0_[i] + lanes[i];
      mul0_[i] ^= (v1_[i] & 0xffffffff) * (v0_[i] >> 32);
      v0_[i] += mul1_[i];
      mul1_[i] ^= (v0_[i] & 0xffffffff) * (v1_[i] >> 32);
    }
    zipper_merge_and_add(v1_[1], v1_[0], v0_[1], v0_[0]);
    zipper_merge_and_add(v1_[3], v1_[2], v0_[3], v0_[2]);
    zipper_merge_and_add(v0_[1], v0_[0], v1_[1], v1_[0]);
    zipper_merge_and_add(v0_[3], v0_[2], v1_[3], v1_[2]);
  }

  Lanes v0_{}, v1_{}, mul0_, mul1_;
};

}  // namespace

std::uint64_t highway_hash64(std::span<const std::byte> bytes, const Lanes& key) noexcept {
  Hasher hasher(key);
  for (; bytes.size() >= kPacketBytes; bytes = bytes.subspan(kPacketBytes))
    hasher.update(bytes.data());
  if (!bytes.empty()) hasher.update_rest(bytes);
  return hasher.finish();
}

}  // namespace headrace::detail
