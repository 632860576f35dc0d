// Weights are noise but for their exponents: apart from the rest these have an entropy of 2 to 3
// bits of 8. There is nothing to match in them; what makes them shorter is the entropy code alone.
// So zstd looks for matches at few places (a negative level), and codes what is left, which it
// would not do by itself at such a level. Blocks of 16 KiB, 2026-11-26: 0.68 of bfloat16 at 0.9 CPU
// s/GB; level 1 makes 0.70 at 2.6, since each short match that it takes costs more than it saves.
#define ZSTD_STATIC_LINKING_ONLY  // Names of parameters; no function is taken from there.
#include "checkpoint/block_packer.h"

#include <zstd.h>

#include <array>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/endian.h"

namespace headrace::checkpoint {
namespace {

constexpr int kLevel = -30;
constexpr std::uint32_t kMostPlanes = 8;
constexpr std::size_t kCountBytes = sizeof(std::uint16_t);
static_assert(kPackRoomBytes >= kSumBlockBytes + 1 + kMostPlanes * kCountBytes);

using Block = std::array<std::byte, kSumBlockBytes>;
using Packer = std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)>;
using Unpacker = std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)>;

Packer make_packer() {
  Packer packer(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  if (packer) {
    HEADRACE_CHECK(
        !ZSTD_isError(ZSTD_CCtx_setParameter(packer.get(), ZSTD_c_compressionLevel, kLevel)));
    // A library that does not know it compresses less.
    static_cast<void>(
        ZSTD_CCtx_setParameter(packer.get(), ZSTD_c_literalCompressionMode, ZSTD_ps_enable));
  }
  return packer;
}

std::size_t head_bytes(std::uint32_t planes) noexcept { return 1 + planes * kCountBytes; }

template <std::size_t kPlanes>
void split(std::span<const std::byte> from, std::byte* to) noexcept {
  const std::size_t count = from.size() / kPlanes;
  for (std::size_t plane = 0; plane < kPlanes; ++plane) {
    for (std::size_t i = 0; i < count; ++i) to[plane * count + i] = from[i * kPlanes + plane];
  }
}

template <std::size_t kPlanes>
void join(const std::byte* from, std::span<std::byte> to) noexcept {
  const std::size_t count = to.size() / kPlanes;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t plane = 0; plane < kPlanes; ++plane)
      to[i * kPlanes + plane] = from[plane * count + i];
  }
}

void split_planes(std::span<const std::byte> from, std::uint32_t planes, std::byte* to) noexcept {
  if (planes == 8) return split<8>(from, to);
  if (planes == 4) return split<4>(from, to);
  if (planes == 2) return split<2>(from, to);
  split<1>(from, to);
}

void join_planes(const std::byte* from, std::uint32_t planes, std::span<std::byte> to) noexcept {
  if (planes == 8) return join<8>(from, to);
  if (planes == 4) return join<4>(from, to);
  if (planes == 2) return join<2>(from, to);
  join<1>(from, to);
}

/// \return bytes in the front of `to`: fewer than `plane` has, or those of it.
std::size_t pack_plane(ZSTD_CCtx* context, std::span<const std::byte> plane,
                       std::span<std::byte> to) {
  const std::size_t packed =
      ZSTD_compress2(context, to.data(), to.size(), plane.data(), plane.size());
  if (!ZSTD_isError(packed) && packed < plane.size()) return packed;
  std::memcpy(to.data(), plane.data(), plane.size());
  return plane.size();
}

bool unpack_plane(std::span<const std::byte> stored, std::span<std::byte> plane) {
  if (stored.size() == plane.size()) {
    std::memcpy(plane.data(), stored.data(), plane.size());
    return true;
  }
  thread_local const Unpacker context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  // In one pass: the output is the window, so that nothing is allocated for what a frame says.
  return context && ZSTD_decompressDCtx(context.get(), plane.data(), plane.size(), stored.data(),
                                        stored.size()) == plane.size();
}

}  // namespace

std::uint32_t plane_count(std::string_view dtype) noexcept {
  if (dtype == "C64") return 4;  // Two numbers of four bytes.
  const auto bits = bits_of_dtype(dtype);
  return bits && *bits >= 16 ? *bits / 8 : 1;
}

std::size_t pack_block(std::span<const std::byte> plain, std::uint32_t planes,
                       std::span<std::byte, kPackRoomBytes> out) {
  thread_local const Packer context = make_packer();
  if (!context || plain.size() % planes != 0) return 0;
  Block apart;
  split_planes(plain, planes, apart.data());
  const std::size_t plane_bytes = plain.size() / planes;
  std::size_t at = head_bytes(planes);
  out[0] = static_cast<std::byte>(planes);
  for (std::uint32_t i = 0; i < planes; ++i) {
    const std::span plane(apart.data() + i * plane_bytes, plane_bytes);
    const std::size_t size = pack_plane(context.get(), plane, out.subspan(at));
    store_le<std::uint16_t>(out.data() + 1 + i * kCountBytes, static_cast<std::uint16_t>(size));
    at += size;
  }
  return at < plain.size() ? at : 0;
}

bool unpack_block(std::span<const std::byte> stored, std::span<std::byte> plain) {
  if (stored.empty() || plain.size() > kSumBlockBytes) return false;
  const auto planes = static_cast<std::uint32_t>(stored[0]);
  const bool is_known = planes == 1 || planes == 2 || planes == 4 || planes == kMostPlanes;
  if (!is_known || plain.size() % planes != 0 || stored.size() < head_bytes(planes)) return false;
  Block apart;
  const std::size_t plane_bytes = plain.size() / planes;
  auto rest = stored.subspan(head_bytes(planes));
  for (std::uint32_t i = 0; i < planes; ++i) {
    const auto size = load_le<std::uint16_t>(stored.data() + 1 + i * kCountBytes);
    if (size > rest.size() || size > plane_bytes) return false;
    if (!unpack_plane(rest.first(size), {apart.data() + i * plane_bytes, plane_bytes}))
      return false;
    rest = rest.subspan(size);
  }
  if (!rest.empty()) return false;
  join_planes(apart.data(), planes, plain);
  return true;
}

}  // namespace headrace::checkpoint
