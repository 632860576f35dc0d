// A caller knows how many bytes must come out, and every function here holds the codec to it: a
// result that is longer, shorter or followed by other bytes is kCorrupt, never a partial answer.
// Output goes straight to the caller's memory, and never more than it has room for, so that a
// hostile file can not make the process grow.
//
// Contexts are kept one a thread: blocks and frames may be a few KiB, and the contexts are larger
// than that. libdeflate does gzip and zlib in one call; it needs all of the input and room for all
// of the output, and both are there. zlib itself is used only to look at the beginning of a stream
// that is not there as a whole.
#include "shard/codec/inflate.h"

#include <fmt/format.h>
#include <libdeflate.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <memory>

#include "headrace/inflate.h"
#include "shard/codec/stream_inflater.h"

namespace headrace::detail {
namespace {

using ZstdContext = std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)>;
using DeflateContext =
    std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)>;

Status corrupt(Compression compression, std::span<const std::byte> stored,
               std::span<const std::byte> raw, std::string_view what) {
  return Status(Code::kCorrupt,
                fmt::format("{}: {} ({} bytes stored, {} bytes expected)",
                            compression_name(compression), what, stored.size(), raw.size()));
}

Status no_memory() { return Status(Code::kExhausted, "no memory for a decompressor"); }

Status inflate_zstd(std::span<const std::byte> stored, std::span<std::byte> raw) {
  // Frames may be a few KiB; making a context of 150 KiB for each would cost more than they do.
  thread_local const ZstdContext context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  if (!context) return no_memory();
  // In one pass, because the output itself is the window: a stream would allocate what a hostile
  // frame header asks for.
  const std::size_t size =
      ZSTD_decompressDCtx(context.get(), raw.data(), raw.size(), stored.data(), stored.size());
  if (ZSTD_isError(size)) return corrupt(Compression::kZstd, stored, raw, ZSTD_getErrorName(size));
  if (size != raw.size()) {
    return corrupt(Compression::kZstd, stored, raw, fmt::format("inflates to {} bytes", size));
  }
  return Status();
}

// Zeros may follow a member of gzip, and another member them: as StreamInflater has it.
std::size_t skip_padding(std::span<const std::byte> bytes, std::size_t at) {
  while (at < bytes.size() && bytes[at] == std::byte{0}) ++at;
  return at;
}

Status inflate_deflate(Compression compression, std::span<const std::byte> stored,
                       std::span<std::byte> raw) {
  thread_local const DeflateContext context(libdeflate_alloc_decompressor(),
                                            &libdeflate_free_decompressor);
  if (!context) return no_memory();
  const bool is_gzip = compression == Compression::kGzip;
  const auto member = is_gzip ? &libdeflate_gzip_decompress_ex : &libdeflate_zlib_decompress_ex;
  std::size_t in = 0, out = 0;
  // A first member must be there; what follows must be another.
  while (in == 0 || (is_gzip && in < stored.size())) {
    std::size_t consumed = 0, produced = 0;
    const libdeflate_result result =
        member(context.get(), stored.data() + in, stored.size() - in, raw.data() + out,
               raw.size() - out, &consumed, &produced);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
      return corrupt(compression, stored, raw, "inflates to more bytes");
    if (result != LIBDEFLATE_SUCCESS || consumed == 0)
      return corrupt(compression, stored, raw, "bad or cut off");
    in = is_gzip ? skip_padding(stored, in + consumed) : in + consumed;
    out += produced;
  }
  if (!is_gzip && in != stored.size())
    return corrupt(compression, stored, raw, "bytes after its end");
  if (out != raw.size())
    return corrupt(compression, stored, raw, fmt::format("inflates to {} bytes", out));
  return Status();
}

Status inflate_snappy(std::span<const std::byte> stored, std::span<std::byte> raw) {
  const auto* in = reinterpret_cast<const char*>(stored.data());
  std::size_t size = 0;
  // RawUncompress() writes as many bytes as the text says itself: compare before.
  if (!snappy::GetUncompressedLength(in, stored.size(), &size))
    return corrupt(Compression::kSnappy, stored, raw, "bad length");
  if (size != raw.size()) {
    return corrupt(Compression::kSnappy, stored, raw, fmt::format("inflates to {} bytes", size));
  }
  if (!snappy::RawUncompress(in, stored.size(), reinterpret_cast<char*>(raw.data())))
    return corrupt(Compression::kSnappy, stored, raw, "bad or cut off");
  return Status();
}

Status inflate_stream(Compression compression, std::span<const std::byte> stored,
                      std::span<std::byte> raw) {
  HEADRACE_TRY_ASSIGN(const auto stream, StreamInflater::create(compression));
  std::size_t in = 0, out = 0;
  std::byte beyond{};
  while (true) {
    // Behind the last byte one more of room, so that a stream that is too long shows itself.
    const bool is_full = out == raw.size();
    const auto room = is_full ? std::span(&beyond, 1) : raw.subspan(out);
    HEADRACE_TRY_ASSIGN(const auto step, stream->step(stored.subspan(in), room));
    in += step.consumed_bytes;
    if (step.produced_bytes > 0 && is_full)
      return corrupt(compression, stored, raw, "inflates to more bytes");
    out += step.produced_bytes;
    if (step.produced_bytes < room.size()) break;  // The input is used up.
  }
  if (in != stored.size() || !stream->is_complete())
    return corrupt(compression, stored, raw, "cut off");
  if (out != raw.size())
    return corrupt(compression, stored, raw, fmt::format("inflates to {} bytes", out));
  return Status();
}

}  // namespace

Status inflate_bare(std::span<const std::byte> stored, std::span<std::byte> raw,
                    std::uint32_t crc32) {
  thread_local const DeflateContext context(libdeflate_alloc_decompressor(),
                                            &libdeflate_free_decompressor);
  if (!context) return no_memory();
  const libdeflate_result result = libdeflate_deflate_decompress(
      context.get(), stored.data(), stored.size(), raw.data(), raw.size(), nullptr);
  if (result != LIBDEFLATE_SUCCESS) return Status(Code::kCorrupt, "deflate: bad or cut off");
  return check_crc32(raw, crc32);
}

Status check_crc32(std::span<const std::byte> raw, std::uint32_t crc32) {
  const std::uint32_t actual = libdeflate_crc32(0, raw.data(), raw.size());
  if (actual == crc32) return Status();
  return Status(Code::kCorrupt, fmt::format("its CRC-32 is {:08x}, not {:08x}", actual, crc32));
}

std::string inflate_begin(std::span<const std::byte> stored, std::size_t most_bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return {};
  std::string out(most_bytes, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(stored.data()));
  stream.avail_in = static_cast<uInt>(stored.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::inflate(&stream, Z_SYNC_FLUSH);  // What it could not do is not in `out`.
  out.resize(out.size() - stream.avail_out);
  inflateEnd(&stream);
  return out;
}

Status inflate(Compression compression, std::span<const std::byte> stored,
               std::span<std::byte> raw) {
  switch (compression) {
    case Compression::kZstd:
      return inflate_zstd(stored, raw);
    case Compression::kGzip:
    case Compression::kZlib:
      return inflate_deflate(compression, stored, raw);
    case Compression::kSnappy:
      return inflate_snappy(stored, raw);
    case Compression::kBzip2:
    case Compression::kBrotli:
    case Compression::kXz:
      return inflate_stream(compression, stored, raw);
    case Compression::kNone:
    case Compression::kOwn:
    case Compression::kUnpacked:
      break;
  }
  return Status(Code::kUnsupported, "not a compression that can be inflated");
}

}  // namespace headrace::detail

namespace headrace {

Status inflate(std::string_view compression, std::span<const std::byte> stored,
               std::span<std::byte> raw) {
  using detail::Compression;
  for (const Compression known :
       {Compression::kZstd, Compression::kGzip, Compression::kZlib, Compression::kBzip2,
        Compression::kBrotli, Compression::kSnappy, Compression::kXz}) {
    if (compression == detail::compression_name(known)) return detail::inflate(known, stored, raw);
  }
  return Status(Code::kInvalidArgument, fmt::format("no compression named '{}'", compression));
}

}  // namespace headrace
