// The first frame, on the screen that the file declares: what a frame does not cover is colour 0,
// or the transparent one where there is one, as Pillow has it. Of a file that may end early, the
// last block of pixels is as long as it is there, and rows that are not whole are grey.
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "decode/image/codecs.h"
#include "decode/image/scratch.h"
#include "decode/image/whole_image.h"

namespace headrace::detail {
namespace {

constexpr std::size_t kHeaderBytes = 13;

Status corrupt(const char* what) { return {Code::kCorrupt, std::string("GIF: ") + what}; }

struct Source {
  std::span<const std::byte> bytes;
  std::size_t at = 0;
  /// From here on blocks are read, a length and then the bytes: none is longer than what is left of
  /// the file, and behind that is the empty one that ends an image.
  bool shortens_blocks = false;
  bool is_at_length = true;
};

int read_bytes(GifFileType* gif, GifByteType* out, int count) {
  Source& source = *static_cast<Source*>(gif->UserData);
  const std::size_t size =
      std::min(static_cast<std::size_t>(count), source.bytes.size() - source.at);
  std::memcpy(out, source.bytes.data() + source.at, size);
  source.at += size;
  if (!source.shortens_blocks) return static_cast<int>(size);
  if (source.is_at_length) {
    const std::size_t left = source.bytes.size() - source.at;
    const std::size_t length = size == 0 ? 0 : std::min<std::size_t>(out[0], left);
    out[0] = static_cast<GifByteType>(length);
    source.is_at_length = length == 0;
    return 1;
  }
  source.is_at_length = true;
  return static_cast<int>(size);
}

struct Closer {
  void operator()(GifFileType* gif) const noexcept { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, Closer>;

/// Goes to the first frame, and remembers which colour is transparent before it. False: there is
/// none.
bool find_frame(GifFileType* gif, int& transparent) {
  GifRecordType type = UNDEFINED_RECORD_TYPE;
  while (DGifGetRecordType(gif, &type) == GIF_OK && type != TERMINATE_RECORD_TYPE) {
    if (type == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(gif) == GIF_OK;
    int code = 0;
    GifByteType* block = nullptr;
    if (type != EXTENSION_RECORD_TYPE || DGifGetExtension(gif, &code, &block) != GIF_OK)
      return false;
    while (block != nullptr) {
      if (code == GRAPHICS_EXT_FUNC_CODE && block[0] >= 4 && (block[1] & 1) != 0)
        transparent = block[4];
      if (DGifGetExtensionNext(gif, &block) != GIF_OK) return false;
    }
  }
  return false;
}

/// Row of the frame that comes as number `i` of `height`.
std::uint32_t interlaced_row(std::uint32_t i, std::uint32_t height) noexcept {
  constexpr std::uint32_t kFirst[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};
  for (int pass = 0; pass < 4; ++pass) {
    const std::uint32_t count = (height + kStep[pass] - 1 - kFirst[pass]) / kStep[pass];
    if (i < count) return kFirst[pass] + i * kStep[pass];
    i -= count;
  }
  return height - 1;
}

struct Screen {
  std::uint8_t* indices;
  ImageSize size;
};

/// Where row `i` of the frame, as rows come, is on the screen: its first pixel and how many pixels
/// are not outside.
struct Place {
  std::size_t first = 0;
  std::size_t count = 0;
};

Place place_of(const GifImageDesc& frame, ImageSize screen, std::uint32_t i) noexcept {
  const std::uint32_t y =
      frame.Interlace ? interlaced_row(i, static_cast<std::uint32_t>(frame.Height)) : i;
  const std::size_t at = static_cast<std::size_t>(frame.Top) + y;
  const auto left = static_cast<std::size_t>(frame.Left);
  if (at >= screen.height || left >= screen.width) return {};
  return {at * screen.width + left,
          std::min(static_cast<std::size_t>(frame.Width), screen.width - left)};
}

/// Writes the frame's colours where they lie on the screen; what is outside of it is lost. `row`
/// takes the frame's width. Returns how many rows there are before the file ends or is wrong.
std::uint32_t read_frame(GifFileType* gif, const Screen& screen, std::uint8_t* row) {
  const GifImageDesc& frame = gif->Image;
  const auto height = static_cast<std::uint32_t>(frame.Height);
  for (std::uint32_t i = 0; i < height; ++i) {
    if (DGifGetLine(gif, row, frame.Width) != GIF_OK) return i;
    const Place place = place_of(frame, screen.size, i);
    std::memcpy(screen.indices + place.first, row, place.count);
  }
  return height;
}

/// Makes the frame's rows from the one on that came as number `i` grey, in pixels of 4 channels.
void grey_rows(const GifImageDesc& frame, ImageSize screen, std::uint32_t i,
               std::uint8_t* pixels) noexcept {
  for (; i < static_cast<std::uint32_t>(frame.Height); ++i) {
    const Place place = place_of(frame, screen, i);
    std::memset(pixels + place.first * 4, 128, place.count * 4);
  }
}

/// Colours of indices, 3 bytes each; those that a map lacks are grey, as without any map.
struct Palette {
  std::uint8_t rgb[256 * 3];
};

Palette palette_of(const GifFileType* gif) noexcept {
  Palette palette;
  const ColorMapObject* map = gif->Image.ColorMap != nullptr ? gif->Image.ColorMap : gif->SColorMap;
  for (int i = 0; i < 256; ++i) {
    const bool is_there = map != nullptr && i < map->ColorCount;
    const GifColorType grey = {static_cast<GifByteType>(map == nullptr ? i : 0),
                               static_cast<GifByteType>(map == nullptr ? i : 0),
                               static_cast<GifByteType>(map == nullptr ? i : 0)};
    const auto at = static_cast<std::size_t>(i);
    const GifColorType color = is_there ? map->Colors[i] : grey;
    palette.rgb[3 * at] = color.Red;
    palette.rgb[3 * at + 1] = color.Green;
    palette.rgb[3 * at + 2] = color.Blue;
  }
  return palette;
}

/// From indices to pixels of 4 channels, from behind, in place: an index takes the first quarter.
void color_in_place(std::uint8_t* pixels, std::size_t count, const Palette& palette,
                    int transparent) noexcept {
  for (std::size_t i = count; i-- > 0;) {
    const std::size_t index = pixels[i];
    std::memcpy(pixels + 4 * i, palette.rgb + 3 * index, 3);
    pixels[4 * i + 3] = static_cast<int>(index) == transparent ? 0 : 255;
  }
}

}  // namespace

bool looks_like_gif(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 6 && (std::memcmp(bytes.data(), "GIF87a", 6) == 0 ||
                               std::memcmp(bytes.data(), "GIF89a", 6) == 0);
}

Result<ImageHeader> parse_gif_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) return corrupt("it ends inside of its header");
  const auto u16 = [&](std::size_t at) {
    return std::to_integer<std::uint32_t>(bytes[at]) | std::to_integer<std::uint32_t>(bytes[at + 1])
                                                           << 8;
  };
  ImageHeader header{.kind = ImageKind::kGif, .size = {u16(8), u16(6)}};
  header.whole_channels = 4;
  header.codec_bytes = 128 << 10;  // Its tables, and a row of at most 64 KiB.
  return header;
}

Status decode_gif(std::span<const std::byte> bytes, const ImageHeader& header,
                  const CodecRequest& request, RowSink& sink) {
  Source source{bytes};
  int code = 0;
  const Gif gif(DGifOpen(&source, read_bytes, &code));
  if (!gif) return corrupt("its header is wrong");
  int transparent = -1;
  if (!find_frame(gif.get(), transparent)) return corrupt("it has no image");
  const std::size_t count = std::size_t{header.size.width} * header.size.height;
  std::uint8_t* pixels = thread_scratch().take(ScratchUse::kWhole, count * 4);
  const std::unique_ptr<std::uint8_t[]> row(
      new (std::nothrow) std::uint8_t[static_cast<std::size_t>(gif->Image.Width) + 1]);
  if (pixels == nullptr || !row) return {Code::kExhausted, "GIF: no memory for its pixels"};
  std::memset(pixels, std::max(transparent, 0), count);
  source.shortens_blocks = request.allows_truncated;
  const GifImageDesc& frame = gif->Image;
  const std::uint32_t there = read_frame(gif.get(), {pixels, header.size}, row.get());
  if (there < static_cast<std::uint32_t>(frame.Height) && !request.allows_truncated)
    return corrupt("its pixels are corrupt or end early");
  color_in_place(pixels, count, palette_of(gif.get()), transparent);
  grey_rows(frame, header.size, there, pixels);
  return give_region({pixels, std::size_t{header.size.width} * 4, header.size.height},
                     PixelForm::kColorAlpha, request, sink);
}

}  // namespace headrace::detail
