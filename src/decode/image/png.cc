// - libpng reports errors by a longjmp, so the functions between setjmp and the library hold
//   nothing that has a destructor.
// - libpng reads pixels by several KiB, and uses none of them where fewer are there. Of a file that
//   may end early, the chunk that is cut off is given out as a shorter one.
// - Rows are converted by libpng to 8 bits of grey or RGB, with or without alpha; the rest is ours.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "decode/image/codecs.h"
#include "decode/image/exif.h"
#include "decode/image/scratch.h"
#include "decode/image/whole_image.h"

namespace headrace::detail {
namespace {

constexpr std::size_t kSignatureBytes = 8;
/// Signature and IHDR with its length, name and checksum.
constexpr std::size_t kHeaderBytes = kSignatureBytes + 25;
/// Length and name.
constexpr std::size_t kChunkHead = 8;

std::uint32_t u32_at(std::span<const std::byte> bytes, std::size_t at) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value = value << 8 | std::to_integer<std::uint32_t>(bytes[at + i]);
  return value;
}

bool has_name(std::span<const std::byte> bytes, std::size_t at, std::string_view name) noexcept {
  return std::memcmp(bytes.data() + at, name.data(), name.size()) == 0;
}

/// Of the first eXIf chunk, which may stand in front of the pixels or behind them.
Orientation orientation_of(std::span<const std::byte> bytes) noexcept {
  for (std::size_t at = kSignatureBytes; at + kChunkHead <= bytes.size();) {
    const std::size_t size = u32_at(bytes, at), rest = bytes.size() - at - kChunkHead;
    if (has_name(bytes, at + 4, "IEND") || size + 4 > rest) return 1;
    if (has_name(bytes, at + 4, "eXIf"))
      return exif_orientation(bytes.subspan(at + kChunkHead, size));
    at += kChunkHead + size + 4;
  }
  return 1;
}

/// A chunk of pixels that the file's end cuts off; bytes.size(): there is none.
std::size_t find_cut_pixels(std::span<const std::byte> bytes) noexcept {
  for (std::size_t at = kSignatureBytes; at + kChunkHead <= bytes.size();) {
    const std::size_t size = u32_at(bytes, at), rest = bytes.size() - at - kChunkHead;
    if (size > rest) return has_name(bytes, at + 4, "IDAT") ? at : bytes.size();
    at += kChunkHead + size + 4;
  }
  return bytes.size();
}

struct Job {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> bytes;
  std::size_t at = 0;
  /// A chunk that is given out as one of the bytes that are there.
  std::size_t shortened_at = SIZE_MAX;
  std::jmp_buf stop;
  char message[128];
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  Job& job = *static_cast<Job*>(png_get_error_ptr(png));
  std::strncpy(job.message, message, sizeof(job.message) - 1);
  std::longjmp(job.stop, 1);
}
void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, std::size_t count) {
  Job& job = *static_cast<Job*>(png_get_io_ptr(png));
  if (count > job.bytes.size() - job.at) png_error(png, "it ends early");
  std::memcpy(out, job.bytes.data() + job.at, count);
  // libpng reads a chunk's head by one call.
  if (job.at == job.shortened_at && count == kChunkHead)
    png_save_uint_32(out, static_cast<png_uint_32>(job.bytes.size() - job.at - kChunkHead));
  job.at += count;
}

/// Of the rows that libpng gives. Palettes become colours, transparency alpha.
PixelForm set_transforms(const Job& job) {
  png_set_strip_16(job.png);
  png_set_expand(job.png);
  png_read_update_info(job.png, job.info);
  switch (png_get_channels(job.png, job.info)) {
    case 1:
      return PixelForm::kGrey;
    case 2:
      return PixelForm::kGreyAlpha;
    case 3:
      return PixelForm::kColor;
    default:
      return PixelForm::kColorAlpha;
  }
}

/// The rows of the file from libpng, and those of the region, as asked for.
struct Buffers {
  std::uint8_t* stored = nullptr;
  std::uint8_t* out = nullptr;
};

/// Of `height` rows; those behind the region only where the file may not end early.
void give_rows(Job& job, PixelForm form, std::uint32_t height, const CodecRequest& request,
               const Buffers& buffers, RowSink& sink) {
  const Rect& region = request.region;
  const std::size_t stride = std::size_t{region.width} * channel_count(request.mode);
  const std::uint32_t end = region.y + region.height;
  for (std::uint32_t y = 0; y < (request.allows_truncated ? end : height); ++y) {
    png_read_row(job.png, buffers.stored, nullptr);
    if (y < region.y || y >= end) continue;
    const std::uint8_t* from = buffers.stored + std::size_t{region.x} * channel_count(form);
    convert_pixels(form, request.mode, from, region.width, buffers.out);
    sink.take({buffers.out, stride, 1});
  }
}

void read_interlaced(Job& job, int passes, ImageSize size, std::size_t row_bytes,
                     std::uint8_t* pixels) {
  for (int pass = 0; pass < passes; ++pass) {
    for (std::uint32_t y = 0; y < size.height; ++y)
      png_read_row(job.png, pixels + y * row_bytes, nullptr);
  }
}

/// What a job has found out, outside of the frame that a longjmp leaves.
struct Progress {
  PixelForm form = PixelForm::kGrey;
  int passes = 1;
  std::size_t row_bytes = 0;
  Buffers buffers;
};

/// Everything up to the pixels. False: no memory.
bool begin(Job& job, const ImageHeader& header, const CodecRequest& request, Progress& progress) {
  png_set_read_fn(job.png, &job, read_bytes);
  // A few bytes of text or colour profile can claim to be much: neither is wanted.
  png_set_chunk_malloc_max(job.png, 1 << 20);
  png_set_keep_unknown_chunks(job.png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
  png_set_user_limits(job.png, 0x7FFFFFFF, 0x7FFFFFFF);
  png_set_option(job.png, PNG_SKIP_sRGB_CHECK_PROFILE, PNG_OPTION_ON);
  png_read_info(job.png, job.info);
  if (png_get_image_width(job.png, job.info) != header.size.width ||
      png_get_image_height(job.png, job.info) != header.size.height)
    png_error(job.png, "it has two sizes");
  progress.passes = png_set_interlace_handling(job.png);
  progress.form = set_transforms(job);
  progress.row_bytes = png_get_rowbytes(job.png, job.info);
  if (progress.row_bytes != std::size_t{header.size.width} * channel_count(progress.form))
    png_error(job.png, "its rows are not as long as its size says");
  const std::size_t rows = progress.passes > 1 ? header.size.height : 1;
  progress.buffers.stored =
      thread_scratch().take(ScratchUse::kWhole, progress.row_bytes * rows + kRowPadding);
  progress.buffers.out = thread_scratch().take(
      ScratchUse::kRows,
      std::size_t{request.region.width} * channel_count(request.mode) + kRowPadding);
  if (progress.buffers.stored == nullptr || progress.buffers.out == nullptr) return false;
  std::memset(progress.buffers.stored, 128, progress.row_bytes * rows);
  return true;
}

/// Runs libpng; false where it gave up, with job.message.
bool run(Job& job, const ImageHeader& header, const CodecRequest& request, Progress& progress,
         RowSink& sink) {
  if (setjmp(job.stop) != 0) return false;
  if (!begin(job, header, request, progress)) png_error(job.png, "no memory for its rows");
  if (progress.passes == 1) {
    give_rows(job, progress.form, header.size.height, request, progress.buffers, sink);
  } else {
    read_interlaced(job, progress.passes, header.size, progress.row_bytes, progress.buffers.stored);
  }
  return true;
}

/// Counts rows, so that what a truncated file lacks can be made up.
class CountingSink final : public RowSink {
 public:
  explicit CountingSink(RowSink& inner) : inner_(inner) {}
  void take(const Rows& rows) noexcept override {
    count_ += rows.count;
    inner_.take(rows);
  }
  std::uint32_t count() const noexcept { return count_; }

 private:
  RowSink& inner_;
  std::uint32_t count_ = 0;
};

/// Grey rows for those that a truncated file lacks.
void give_missing(const CodecRequest& request, const Progress& progress, CountingSink& sink) {
  const std::size_t stride = std::size_t{request.region.width} * channel_count(request.mode);
  std::memset(progress.buffers.out, 128, stride);
  while (sink.count() < request.region.height) sink.take({progress.buffers.out, stride, 1});
}

}  // namespace

bool looks_like_png(std::span<const std::byte> bytes) noexcept {
  constexpr unsigned char kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  return bytes.size() >= sizeof(kSignature) &&
         std::memcmp(bytes.data(), kSignature, sizeof(kSignature)) == 0;
}

Result<ImageHeader> parse_png_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes || !has_name(bytes, kSignatureBytes + 4, "IHDR"))
    return Status(Code::kCorrupt, "PNG: it ends inside of its header");
  ImageHeader header{.kind = ImageKind::kPng, .size = {}};
  header.size = {u32_at(bytes, kSignatureBytes + 12), u32_at(bytes, kSignatureBytes + 8)};
  if (header.size.height >> 31 != 0 || header.size.width >> 31 != 0)
    return Status(Code::kCorrupt, "PNG: a side of 2^31 pixels or more");
  header.orientation = orientation_of(bytes);
  const bool is_interlaced = bytes[kSignatureBytes + 20] != std::byte{0};
  // Rows before and after filters, of up to 8 bytes a pixel, some twice; zlib's window and state;
  // chunks of at most 1 MiB.
  header.codec_bytes = header.size.width * 40ULL + (3 << 20);
  header.whole_channels = is_interlaced ? 4 : 0;
  return header;
}

Status decode_png(std::span<const std::byte> bytes, const ImageHeader& header,
                  const CodecRequest& request, RowSink& sink) {
  Job job{};
  job.bytes = bytes;
  if (request.allows_truncated) job.shortened_at = find_cut_pixels(bytes);
  job.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, on_error, on_warning);
  if (job.png != nullptr) job.info = png_create_info_struct(job.png);
  CountingSink counting(sink);
  Progress progress;
  const bool is_done = job.info != nullptr && run(job, header, request, progress, counting);
  png_destroy_read_struct(&job.png, &job.info, nullptr);
  const bool has_buffers = progress.buffers.out != nullptr && progress.buffers.stored != nullptr;
  if (!is_done && !(request.allows_truncated && has_buffers))
    return {Code::kCorrupt, std::string("PNG: ") + job.message};
  if (progress.passes > 1)
    return give_region({progress.buffers.stored, progress.row_bytes, header.size.height},
                       progress.form, request, counting);
  if (!is_done) give_missing(request, progress, counting);
  return {};
}

}  // namespace headrace::detail
