#include "shard/inflate.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <string>

namespace headrace::detail {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string frame(const std::string& text, bool with_size = true) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, with_size ? 1 : 0);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

Code inflate(const std::string& stored, std::string& raw) {
  return inflate_zstd(as_bytes(stored), std::as_writable_bytes(std::span(raw))).code();
}

TEST(InflateZstd, TakesSeveralFramesWithAndWithoutSize) {
  const std::string a(100'000, 'a'), b = "second", skippable("\x50\x2a\x4d\x18\x03\0\0\0xyz", 11);
  std::string raw(a.size() + b.size(), '\0');
  ASSERT_EQ(inflate(frame(a, false) + skippable + frame("") + frame(b), raw), Code::kOk);
  EXPECT_EQ(raw, a + b);
}

TEST(InflateZstd, WantsExactlyTheSizeExpected) {
  const std::string stored = frame(std::string(1000, 'x'), false);
  for (const std::size_t size : {0U, 999U, 1001U, 100'000U}) {
    std::string raw(size, '\0');
    EXPECT_EQ(inflate(stored, raw), Code::kCorrupt) << size;
  }
  std::string raw(1000, '\0');
  EXPECT_EQ(inflate(stored, raw), Code::kOk);
}

TEST(InflateZstd, FindsDamage) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i);
  const std::string good = frame(text);
  std::string raw(text.size(), '\0');
  for (std::size_t size : {std::size_t{0}, std::size_t{3}, good.size() / 2, good.size() - 1}) {
    EXPECT_EQ(inflate(good.substr(0, size), raw), Code::kCorrupt) << size;
  }
  for (std::size_t at = 0; at < good.size(); at += 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x04);
    // The frame has a checksum, so nothing wrong comes out as right (a bit of the header may not
    // matter).
    if (inflate(bad, raw) == Code::kOk) {
      EXPECT_EQ(raw, text) << at;
    }
  }
  EXPECT_EQ(inflate(good + "junk", raw), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace::detail
