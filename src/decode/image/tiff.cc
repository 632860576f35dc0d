// - Rows of 8-bit grey or RGB, the common case, are read as they are; all else (palettes, 1, 2, 4
//   and 16 bits, tiles, planes, YCbCr, fax) goes through libtiff's own conversion to RGBA.
// - Colours are given as they are stored, whatever the alpha beside them.
// - Messages go to a handler of the file, never to stderr, and never to the process's handlers,
//   which others may have set. Handlers of a file came with libtiff 4.5: a build with an older one
//   reads no TIFF.
#include "decode/image/codecs.h"

#ifdef HEADRACE_HAS_TIFF
#include <tiffio.h>
#endif

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "decode/image/scratch.h"
#include "decode/image/whole_image.h"

namespace headrace::detail {

bool looks_like_tiff(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < 8) return false;
  constexpr const char* kMarks[] = {"II*\0", "MM\0*", "II+\0", "MM\0+"};
  return std::ranges::any_of(
      kMarks, [&](const char* mark) { return std::memcmp(bytes.data(), mark, 4) == 0; });
}

#ifdef HEADRACE_HAS_TIFF
namespace {

Status corrupt(const std::string& what) { return {Code::kCorrupt, "TIFF: " + what}; }

struct Source {
  std::span<const std::byte> bytes;
  std::uint64_t at = 0;
};
Source& source_of(thandle_t handle) noexcept { return *static_cast<Source*>(handle); }

tmsize_t read_bytes(thandle_t handle, void* out, tmsize_t count) {
  Source& source = source_of(handle);
  if (count <= 0 || source.at >= source.bytes.size()) return 0;
  const std::uint64_t size =
      std::min<std::uint64_t>(static_cast<std::uint64_t>(count), source.bytes.size() - source.at);
  std::memcpy(out, source.bytes.data() + source.at, size);
  source.at += size;
  return static_cast<tmsize_t>(size);
}
tmsize_t write_nothing(thandle_t, void*, tmsize_t) { return 0; }
toff_t seek(thandle_t handle, toff_t offset, int whence) {
  Source& source = source_of(handle);
  const std::uint64_t base = whence == SEEK_SET   ? 0
                             : whence == SEEK_CUR ? source.at
                                                  : source.bytes.size();
  return source.at = base + offset;
}
int close_nothing(thandle_t) { return 0; }
toff_t size_of(thandle_t handle) { return source_of(handle).bytes.size(); }
int map(thandle_t handle, void** base, toff_t* size) {
  const Source& source = source_of(handle);
  *base = const_cast<std::byte*>(source.bytes.data());
  *size = source.bytes.size();
  return 1;
}
void unmap(thandle_t, void*, toff_t) {}

/// 1: nobody else hears of it.
int ignore(TIFF*, void*, const char*, const char*, va_list) { return 1; }

struct Closer {
  void operator()(TIFF* tiff) const noexcept { TIFFClose(tiff); }
  void operator()(TIFFOpenOptions* options) const noexcept { TIFFOpenOptionsFree(options); }
};
using Tiff = std::unique_ptr<TIFF, Closer>;

/// A file may claim any size: no single buffer may be larger than an image of the default limit.
constexpr tmsize_t kMostBytesAtOnce = tmsize_t{1} << 30;

Tiff open(Source& source) {
  const std::unique_ptr<TIFFOpenOptions, Closer> options(TIFFOpenOptionsAlloc());
  if (!options) return nullptr;
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMostBytesAtOnce);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), ignore, nullptr);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), ignore, nullptr);
  return Tiff(TIFFClientOpenExt("value", "r", &source, read_bytes, write_nothing, seek,
                                close_nothing, size_of, map, unmap, options.get()));
}

template <class T>
T field(TIFF* tiff, std::uint32_t tag, T otherwise) {
  T value = otherwise;
  return TIFFGetFieldDefaulted(tiff, tag, &value) == 1 ? value : otherwise;
}

/// The form of rows that are read as they are; false for others.
bool find_row_form(TIFF* tiff, PixelForm& form) {
  const auto samples = field<std::uint16_t>(tiff, TIFFTAG_SAMPLESPERPIXEL, 1);
  const auto meaning = field<std::uint16_t>(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_SEPARATED);
  if (field<std::uint16_t>(tiff, TIFFTAG_BITSPERSAMPLE, 1) != 8 || TIFFIsTiled(tiff) != 0 ||
      field<std::uint16_t>(tiff, TIFFTAG_PLANARCONFIG, 1) != PLANARCONFIG_CONTIG ||
      field<std::uint16_t>(tiff, TIFFTAG_SAMPLEFORMAT, 1) != SAMPLEFORMAT_UINT)
    return false;
  const bool is_grey = meaning == PHOTOMETRIC_MINISBLACK && samples <= 2;
  const bool is_color = meaning == PHOTOMETRIC_RGB && (samples == 3 || samples == 4);
  if (is_grey) form = samples == 1 ? PixelForm::kGrey : PixelForm::kGreyAlpha;
  if (is_color) form = samples == 3 ? PixelForm::kColor : PixelForm::kColorAlpha;
  return is_grey || is_color;
}

/// Rows that are stored one after the other. What comes behind the region is read only where the
/// file may not end early.
Status give_rows(TIFF* tiff, PixelForm form, const ImageHeader& header, const CodecRequest& request,
                 RowSink& sink) {
  const std::size_t row_bytes = std::size_t{header.size.width} * channel_count(form);
  if (static_cast<std::uint64_t>(TIFFScanlineSize64(tiff)) != row_bytes)
    return corrupt("its rows are not as long as its size says");
  const Rect& region = request.region;
  const std::size_t stride = std::size_t{region.width} * channel_count(request.mode);
  std::uint8_t* stored = thread_scratch().take(ScratchUse::kWhole, row_bytes);
  std::uint8_t* out = thread_scratch().take(ScratchUse::kRows, stride + kRowPadding);
  if (stored == nullptr || out == nullptr)
    return {Code::kExhausted, "TIFF: no memory for its rows"};
  const std::uint32_t end = region.y + region.height;
  for (std::uint32_t y = 0; y < (request.allows_truncated ? end : header.size.height); ++y) {
    if (TIFFReadScanline(tiff, stored, y, 0) != 1) {
      if (!request.allows_truncated) return corrupt("its pixels are corrupt or end early");
      std::memset(stored, 128, row_bytes);
    }
    if (y < region.y || y >= end) continue;
    convert_pixels(form, request.mode, stored + std::size_t{region.x} * channel_count(form),
                   region.width, out);
    sink.take({out, stride, 1});
  }
  return {};
}

/// Names all alpha associated. By another one libtiff's conversion multiplies colours, which loses
/// bits.
void keep_colors(TIFF* tiff) {
  std::uint16_t count = 0;
  std::uint16_t* kinds = nullptr;
  if (TIFFGetFieldDefaulted(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) != 1) return;
  std::vector<std::uint16_t> changed(kinds, kinds + count);
  std::ranges::replace(changed, std::uint16_t{EXTRASAMPLE_UNASSALPHA},
                       std::uint16_t{EXTRASAMPLE_ASSOCALPHA});
  if (count > 0) TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, count, changed.data());
}

Status give_converted(TIFF* tiff, const ImageHeader& header, const CodecRequest& request,
                      RowSink& sink) {
  const ImageSize size = header.size;
  const std::size_t stride = std::size_t{size.width} * 4;
  auto* pixels = thread_scratch().take(ScratchUse::kWhole, stride * size.height + kRowPadding);
  if (pixels == nullptr) return {Code::kExhausted, "TIFF: no memory for its pixels"};
  std::memset(pixels, 128, stride * size.height);
  keep_colors(tiff);
  const int orientation = field<std::uint16_t>(tiff, TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT);
  // Asked for as it is stored: nothing is turned.
  const int is_read = TIFFReadRGBAImageOriented(tiff, size.width, size.height,
                                                reinterpret_cast<std::uint32_t*>(pixels),
                                                orientation, request.allows_truncated ? 0 : 1);
  if (is_read != 1 && !request.allows_truncated)
    return corrupt("its pixels are corrupt or end early");
  return give_region({pixels, stride, size.height}, PixelForm::kColorAlpha, request, sink);
}

}  // namespace

Result<ImageHeader> parse_tiff_header(std::span<const std::byte> bytes) {
  Source source{bytes};
  const Tiff tiff = open(source);
  if (!tiff) return corrupt("its header or directory is wrong");
  ImageHeader header{.kind = ImageKind::kTiff, .size = {}};
  header.size = {field<std::uint32_t>(tiff.get(), TIFFTAG_IMAGELENGTH, 0),
                 field<std::uint32_t>(tiff.get(), TIFFTAG_IMAGEWIDTH, 0)};
  const auto orientation = field<std::uint16_t>(tiff.get(), TIFFTAG_ORIENTATION, 1);
  if (orientation >= 2 && orientation <= 8)
    header.orientation = static_cast<Orientation>(orientation);
  header.whole_channels = 4;
  const bool is_tiled = TIFFIsTiled(tiff.get()) != 0;
  const std::uint64_t unit = is_tiled ? TIFFTileSize64(tiff.get()) : TIFFStripSize64(tiff.get());
  header.codec_bytes =
      std::min<std::uint64_t>(unit, kMostBytesAtOnce) * 2 + bytes.size() + (1 << 20);
  return header;
}

Status decode_tiff(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink) {
  Source source{bytes};
  const Tiff tiff = open(source);
  if (!tiff) return corrupt("its header or directory is wrong");
  PixelForm form = PixelForm::kGrey;
  if (find_row_form(tiff.get(), form)) return give_rows(tiff.get(), form, header, request, sink);
  char reason[1024] = "";
  if (TIFFRGBAImageOK(tiff.get(), reason) != 1)
    return {Code::kUnsupported, std::string("TIFF: ") + reason};
  return give_converted(tiff.get(), header, request, sink);
}
#else
Result<ImageHeader> parse_tiff_header(std::span<const std::byte>) {
  return Status(Code::kUnsupported, "TIFF: this build has no libtiff of 4.5 or newer");
}

Status decode_tiff(std::span<const std::byte>, const ImageHeader&, const CodecRequest&, RowSink&) {
  return {Code::kUnsupported, "TIFF: this build has no libtiff of 4.5 or newer"};
}
#endif

}  // namespace headrace::detail
