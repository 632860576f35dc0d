#pragma once
// Compressors for tests, by the libraries that define the formats.
#include <brotli/encode.h>
#include <bzlib.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <string>

#include "shard/index/hri.h"

namespace headrace::testing {

inline std::string deflate_zstd(const std::string& text, bool with_size = true) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, with_size ? 1 : 0);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

/// `window_bits`: 15 for zlib, 31 for gzip.
inline std::string deflate_zlib(const std::string& text, int window_bits) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string deflate(detail::Compression compression, const std::string& text) {
  std::string out(text.size() + text.size() / 50 + 2000, '\0');
  const auto* in = reinterpret_cast<const std::uint8_t*>(text.data());
  auto* to = reinterpret_cast<std::uint8_t*>(out.data());
  switch (compression) {
    case detail::Compression::kZstd:
      return deflate_zstd(text);
    case detail::Compression::kGzip:
      return deflate_zlib(text, 31);
    case detail::Compression::kZlib:
      return deflate_zlib(text, 15);
    case detail::Compression::kBzip2: {
      auto size = static_cast<unsigned>(out.size());
      EXPECT_EQ(BZ2_bzBuffToBuffCompress(out.data(), &size, const_cast<char*>(text.data()),
                                         static_cast<unsigned>(text.size()), 9, 0, 0),
                BZ_OK);
      out.resize(size);
      return out;
    }
    case detail::Compression::kBrotli: {
      std::size_t size = out.size();
      EXPECT_EQ(BrotliEncoderCompress(5, BROTLI_DEFAULT_WINDOW, BROTLI_MODE_GENERIC, text.size(),
                                      in, &size, to),
                BROTLI_TRUE);
      out.resize(size);
      return out;
    }
    case detail::Compression::kSnappy:
      snappy::Compress(text.data(), text.size(), &out);
      return out;
    case detail::Compression::kXz: {
      std::size_t size = 0;
      EXPECT_EQ(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, nullptr, in, text.size(), to, &size,
                                        out.size()),
                LZMA_OK);
      out.resize(size);
      return out;
    }
    default:
      ADD_FAILURE() << "no compressor";
      return {};
  }
}

}  // namespace headrace::testing
