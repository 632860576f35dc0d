#include "tier/remote_header.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/crc32c.h"
#include "base/endian.h"

namespace headrace::tier {
namespace {

constexpr std::size_t kFixedBytes = 80;
constexpr std::size_t kSumAt = 12, kObjectSizeAt = 48;
constexpr std::uint32_t kVersion = 1;

}  // namespace

std::size_t remote_header_bytes(const ExtentInfo& info) noexcept {
  return kFixedBytes + info.url.size() + info.etag.size();
}

void make_remote_header(const ExtentInfo& info, std::uint64_t from_bytes,
                        std::span<const std::byte> data, std::span<std::byte> header) {
  std::byte* const at = header.data();
  const auto half = [&](std::size_t where, std::size_t value) {
    store_le(at + where, static_cast<std::uint32_t>(value));
  };
  std::memcpy(at, "HRXR", 4);
  half(4, kVersion);
  half(8, header.size());
  half(kSumAt, 0);
  const std::array<std::uint64_t, 6> words = {info.name.object.high,  info.name.object.low,
                                              info.name.offset_bytes, info.name.length_bytes,
                                              info.object_size_bytes, from_bytes};
  for (std::size_t i = 0; i < words.size(); ++i) store_le(at + 16 + 8 * i, words[i]);
  half(64, data.size());
  half(68, crc32c(data));
  half(72, info.url.size());
  half(76, info.etag.size());
  std::memcpy(at + kFixedBytes, info.url.data(), info.url.size());
  std::memcpy(at + kFixedBytes + info.url.size(), info.etag.data(), info.etag.size());
  half(kSumAt, crc32c(header));
}

std::optional<std::uint64_t> check_remote_header(const ExtentInfo& info, std::uint64_t from_bytes,
                                                 std::span<const std::byte> data,
                                                 std::span<const std::byte> header) {
  if (!fits_remote_header(info) || header.size() != remote_header_bytes(info)) return std::nullopt;
  ExtentInfo expected = info;
  expected.object_size_bytes = load_le<std::uint64_t>(header.data() + kObjectSizeAt);
  std::array<std::byte, kMostRemoteHeaderBytes> own{};
  const auto made = std::span(own).first(header.size());
  make_remote_header(expected, from_bytes, data, made);
  if (!std::equal(made.begin(), made.end(), header.begin())) return std::nullopt;
  return expected.object_size_bytes;
}

}  // namespace headrace::tier
