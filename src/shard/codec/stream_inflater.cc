// Six libraries behind one loop. What differs is only what may follow the end of a member, and
// that is the format's (header); step() deals with it, the classes with nothing but their library.
//
// - A codec may hold output back: input that is used up does not mean that nothing more comes. So
//   a step ends only with `out` full, or with room left and no input.
// - A step that takes nothing and gives nothing, with input at hand, is corrupt: else hostile
//   bytes would keep the caller in its loop.
// - Windows are bounded for xz and zstd, whose files name their own: 128 MiB is what their usual
//   tools write at the most without being asked by number.
#include "shard/codec/stream_inflater.h"

#include <brotli/decode.h>
#include <bzlib.h>
#include <fmt/format.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>

namespace headrace::detail {
namespace {

// Codecs count in 32 bits; a piece stays below that.
constexpr std::size_t kMostPieceBytes = std::size_t{1} << 30;
// The largest window that `zstd --long` and `xz -9` make without being asked for more by number.
constexpr int kMostZstdWindowLog = 27;
constexpr std::uint64_t kMostXzBytes = std::uint64_t{128} << 20;

Status no_memory(std::string_view name) {
  return Status(Code::kExhausted, fmt::format("{}: no memory for a decompressor", name));
}

template <class T>
T* at(std::span<std::byte> bytes) {
  return reinterpret_cast<T*>(bytes.data());
}

// The C libraries take input as a pointer to mutable bytes and leave them alone.
template <class T>
T* at(std::span<const std::byte> bytes) {
  return reinterpret_cast<T*>(const_cast<std::byte*>(bytes.data()));
}

class DeflateInflater final : public StreamInflater {
 public:
  DeflateInflater(const Codec& codec, int window_bits) : StreamInflater(codec) {
    is_ready_ = inflateInit2(&stream_, window_bits) == Z_OK;
  }
  ~DeflateInflater() override { inflateEnd(&stream_); }

 protected:
  Status begin() override {
    if (!is_ready_ || inflateReset(&stream_) != Z_OK) return no_memory("deflate");
    return Status();
  }
  Result<Coded> code(std::span<const std::byte> in, std::span<std::byte> out) override {
    stream_.next_in = at<Bytef>(in);
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = at<Bytef>(out);
    stream_.avail_out = static_cast<uInt>(out.size());
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      return code == Z_MEM_ERROR ? no_memory("deflate")
                                 : corrupt(stream_.msg != nullptr ? stream_.msg : "bad data");
    }
    return Coded{{in.size() - stream_.avail_in, out.size() - stream_.avail_out},
                 code == Z_STREAM_END};
  }

 private:
  z_stream stream_{};
  bool is_ready_ = false;
};

class Bzip2Inflater final : public StreamInflater {
 public:
  Bzip2Inflater() : StreamInflater({"bzip2", true, false}) {}
  ~Bzip2Inflater() override { end(); }

 protected:
  Status begin() override {
    end();
    is_open_ = BZ2_bzDecompressInit(&stream_, 0, 0) == BZ_OK;
    return is_open_ ? Status() : no_memory("bzip2");
  }
  Result<Coded> code(std::span<const std::byte> in, std::span<std::byte> out) override {
    stream_.next_in = at<char>(in);
    stream_.avail_in = static_cast<unsigned>(in.size());
    stream_.next_out = at<char>(out);
    stream_.avail_out = static_cast<unsigned>(out.size());
    const int code = BZ2_bzDecompress(&stream_);
    if (code != BZ_OK && code != BZ_STREAM_END)
      return code == BZ_MEM_ERROR ? no_memory("bzip2") : corrupt("bad data");
    return Coded{{in.size() - stream_.avail_in, out.size() - stream_.avail_out},
                 code == BZ_STREAM_END};
  }

 private:
  void end() noexcept {
    if (is_open_) BZ2_bzDecompressEnd(&stream_);
    is_open_ = false;
    stream_ = {};
  }
  bz_stream stream_{};
  bool is_open_ = false;
};

class BrotliInflater final : public StreamInflater {
 public:
  BrotliInflater()
      : StreamInflater({"brotli", false, false}), state_(nullptr, &BrotliDecoderDestroyInstance) {}

 protected:
  Status begin() override {
    state_.reset(BrotliDecoderCreateInstance(nullptr, nullptr, nullptr));
    return state_ ? Status() : no_memory("brotli");
  }
  Result<Coded> code(std::span<const std::byte> in, std::span<std::byte> out) override {
    std::size_t in_left = in.size(), out_left = out.size();
    const auto* from = at<const std::uint8_t>(in);
    auto* to = at<std::uint8_t>(out);
    const auto result =
        BrotliDecoderDecompressStream(state_.get(), &in_left, &from, &out_left, &to, nullptr);
    if (result == BROTLI_DECODER_RESULT_ERROR)
      return corrupt(BrotliDecoderErrorString(BrotliDecoderGetErrorCode(state_.get())));
    return Coded{{in.size() - in_left, out.size() - out_left},
                 result == BROTLI_DECODER_RESULT_SUCCESS};
  }

 private:
  std::unique_ptr<BrotliDecoderState, decltype(&BrotliDecoderDestroyInstance)> state_;
};

class XzInflater final : public StreamInflater {
 public:
  XzInflater() : StreamInflater({"xz", true, true}) {}
  ~XzInflater() override { lzma_end(&stream_); }

 protected:
  Status begin() override {
    return lzma_stream_decoder(&stream_, kMostXzBytes, 0) == LZMA_OK ? Status() : no_memory("xz");
  }
  Result<Coded> code(std::span<const std::byte> in, std::span<std::byte> out) override {
    stream_.next_in = at<const std::uint8_t>(in);
    stream_.avail_in = in.size();
    stream_.next_out = at<std::uint8_t>(out);
    stream_.avail_out = out.size();
    const lzma_ret code = lzma_code(&stream_, LZMA_RUN);
    if (code == LZMA_MEM_ERROR) return no_memory("xz");
    if (code == LZMA_MEMLIMIT_ERROR) {
      return Status(Code::kUnsupported,
                    fmt::format("xz: needs more than {} bytes to inflate", kMostXzBytes));
    }
    if (code != LZMA_OK && code != LZMA_STREAM_END && code != LZMA_BUF_ERROR)
      return corrupt(fmt::format("bad data (liblzma {})", static_cast<int>(code)));
    return Coded{{in.size() - stream_.avail_in, out.size() - stream_.avail_out},
                 code == LZMA_STREAM_END};
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

class ZstdInflater final : public StreamInflater {
 public:
  ZstdInflater()
      : StreamInflater({"zstd", true, false}), context_(ZSTD_createDCtx(), &ZSTD_freeDCtx) {}

 protected:
  Status begin() override {
    if (!context_) return no_memory("zstd");
    ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMostZstdWindowLog);
    return Status();
  }
  Result<Coded> code(std::span<const std::byte> in, std::span<std::byte> out) override {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    const std::size_t hint = ZSTD_decompressStream(context_.get(), &output, &input);
    if (ZSTD_isError(hint)) {
      const std::string name = ZSTD_getErrorName(hint);
      if (ZSTD_getErrorCode(hint) == ZSTD_error_frameParameter_windowTooLarge)
        return Status(Code::kUnsupported, "zstd: " + name);
      return corrupt(name);
    }
    return Coded{{input.pos, output.pos}, hint == 0};
  }

 private:
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context_;
};

}  // namespace

Result<std::unique_ptr<StreamInflater>> StreamInflater::create(Compression compression) {
  constexpr int kGzipWindow = 16 + MAX_WBITS, kZlibWindow = MAX_WBITS;
  switch (compression) {
    case Compression::kGzip:
      return std::unique_ptr<StreamInflater>(
          std::make_unique<DeflateInflater>(Codec{"gzip", true, true}, kGzipWindow));
    case Compression::kZlib:
      return std::unique_ptr<StreamInflater>(
          std::make_unique<DeflateInflater>(Codec{"zlib", false, false}, kZlibWindow));
    case Compression::kBzip2:
      return std::unique_ptr<StreamInflater>(std::make_unique<Bzip2Inflater>());
    case Compression::kBrotli:
      return std::unique_ptr<StreamInflater>(std::make_unique<BrotliInflater>());
    case Compression::kXz:
      return std::unique_ptr<StreamInflater>(std::make_unique<XzInflater>());
    case Compression::kZstd:
      return std::unique_ptr<StreamInflater>(std::make_unique<ZstdInflater>());
    default:
      return Status(Code::kUnsupported, fmt::format("'{}' cannot be inflated in pieces",
                                                    compression_name(compression)));
  }
}

Status StreamInflater::corrupt(std::string_view what) const {
  return Status(Code::kCorrupt, fmt::format("{}: {}", codec_.name, what));
}

Result<StreamInflater::Step> StreamInflater::step(std::span<const std::byte> in,
                                                  std::span<std::byte> out) {
  Step done;
  while (done.produced_bytes < out.size()) {
    auto rest = in.subspan(done.consumed_bytes);
    if (is_between_) {
      if (has_begun_ && codec_.may_be_padded) {
        // Padding: gzip and xz allow zeros behind a member.
        const auto member =
            std::find_if(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; });
        done.consumed_bytes += static_cast<std::size_t>(member - rest.begin());
        rest = in.subspan(done.consumed_bytes);
      }
      if (rest.empty()) return done;
      if (has_begun_ && !codec_.may_repeat) return corrupt("bytes after its end");
      HEADRACE_TRY(begin());
      is_between_ = false;
      has_begun_ = true;
    }
    const auto room = out.subspan(done.produced_bytes);
    HEADRACE_TRY_ASSIGN(const Coded coded,
                        code(rest.first(std::min(rest.size(), kMostPieceBytes)),
                             room.first(std::min(room.size(), kMostPieceBytes))));
    done.consumed_bytes += coded.step.consumed_bytes;
    done.produced_bytes += coded.step.produced_bytes;
    is_between_ = coded.is_end;
    // With room left, what the codec held back is out.
    if (!coded.is_end && done.consumed_bytes == in.size()) return done;
    if (!coded.is_end && coded.step.consumed_bytes == 0 && coded.step.produced_bytes == 0)
      return corrupt("makes no progress");
  }
  return done;
}

}  // namespace headrace::detail
