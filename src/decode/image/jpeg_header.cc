// The markers of a JPEG up to its first scan, read by ourselves: libjpeg would build tables of all
// that it reads, 20 times the work.
#include <algorithm>
#include <string>
#include <vector>

#include "decode/image/codecs.h"
#include "decode/image/exif.h"

namespace headrace::detail {
namespace {

constexpr unsigned kStartOfImage = 0xD8, kEndOfImage = 0xD9, kStartOfScan = 0xDA, kApp1 = 0xE1;

Status corrupt(const char* what) { return {Code::kCorrupt, std::string("JPEG: ") + what}; }

struct Component {
  std::uint32_t across = 1;  ///< Sampling factors.
  std::uint32_t down = 1;
};

struct Frame {
  ImageSize size;
  bool is_progressive = false;
  std::vector<Component> components;
};

/// Bytes [at, ...) of a segment.
std::uint32_t byte_at(std::span<const std::byte> bytes, std::size_t at) noexcept {
  return static_cast<std::uint32_t>(bytes[at]);
}
std::uint32_t u16_at(std::span<const std::byte> bytes, std::size_t at) noexcept {
  return byte_at(bytes, at) << 8 | byte_at(bytes, at + 1);
}

bool is_frame(unsigned marker) noexcept {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}
/// Baseline, extended, progressive; the last two with arithmetic coding as well.
bool is_decoded_frame(unsigned marker) noexcept {
  return marker <= 0xC2 || marker == 0xC9 || marker == 0xCA;
}
bool has_no_length(unsigned marker) noexcept {
  return marker == 0x01 || (marker >= 0xD0 && marker <= kStartOfImage);
}

Result<Frame> parse_frame(unsigned marker, std::span<const std::byte> segment) {
  if (!is_decoded_frame(marker))
    return Status(Code::kUnsupported,
                  "JPEG: lossless or hierarchical; only baseline and progressive");
  if (segment.size() < 6) return corrupt("a frame header is cut short");
  if (byte_at(segment, 0) != 8)
    return Status(Code::kUnsupported, "JPEG: samples of other than 8 bits");
  Frame frame;
  frame.size = {u16_at(segment, 1), u16_at(segment, 3)};
  frame.is_progressive = marker == 0xC2 || marker == 0xCA;
  const std::uint32_t count = byte_at(segment, 5);
  if (frame.size.width == 0 || frame.size.height == 0) return corrupt("a side is 0");
  if (count != 1 && count != 3 && count != 4)
    return Status(Code::kUnsupported, "JPEG: neither 1, 3 nor 4 components");
  if (segment.size() < 6 + 3 * count) return corrupt("a frame header is cut short");
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t factors = byte_at(segment, 6 + 3 * i + 1);
    const Component component{factors >> 4, factors & 15};
    if (component.across < 1 || component.across > 4 || component.down < 1 || component.down > 4)
      return corrupt("a sampling factor is not 1 .. 4");
    frame.components.push_back(component);
  }
  return frame;
}

std::uint64_t blocks(std::uint64_t length, std::uint64_t factor, std::uint64_t most) noexcept {
  return (length * factor + 8 * most - 1) / (8 * most) + factor;
}

/// What libjpeg-turbo allocates: tables and pointers; strips of rows, twice with the context that
/// upsampling takes; all coefficients, where they come in several scans.
std::uint64_t codec_bytes(const Frame& frame, bool has_all_components) noexcept {
  constexpr std::uint64_t kTables = 192 << 10;
  std::uint32_t across = 1, down = 1;
  for (const Component& c : frame.components) {
    across = std::max(across, c.across);
    down = std::max(down, c.down);
  }
  const bool keeps_all = frame.is_progressive || !has_all_components;
  std::uint64_t bytes = kTables;
  for (const Component& c : frame.components) {
    const std::uint64_t wide = blocks(frame.size.width, c.across, across);
    const std::uint64_t high = blocks(frame.size.height, c.down, down);
    bytes += (wide * 8 + 64) * down * 8 * 3 + (frame.size.width + 64ULL) * down * 2;
    if (keeps_all) bytes += wide * (high * 64 * 2 + high / 4 + 16) + high * 16;
  }
  return bytes;
}

/// Walks from marker to marker.
class MarkerReader {
 public:
  explicit MarkerReader(std::span<const std::byte> bytes) : bytes_(bytes), at_(2) {}
  /// Goes to the next marker with a length; its bytes are segment(). Like libjpeg, skips what is
  /// none.
  bool next() noexcept {
    do {
      while (at_ < bytes_.size() && byte_at(bytes_, at_) != 0xFF) ++at_;
      while (at_ < bytes_.size() && byte_at(bytes_, at_) == 0xFF) ++at_;
      if (at_ >= bytes_.size()) return false;
      marker_ = byte_at(bytes_, at_++);
      if (marker_ == kEndOfImage) return false;
    } while (marker_ == 0 || has_no_length(marker_));
    if (bytes_.size() - at_ < 2) return false;
    const std::size_t length = u16_at(bytes_, at_);
    if (length < 2 || length > bytes_.size() - at_) return false;
    segment_ = bytes_.subspan(at_ + 2, length - 2);
    at_ += length;
    return true;
  }
  unsigned marker() const noexcept { return marker_; }
  std::span<const std::byte> segment() const noexcept { return segment_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_;
  unsigned marker_ = 0;
  std::span<const std::byte> segment_;
};

Orientation app1_orientation(std::span<const std::byte> segment) noexcept {
  constexpr std::byte kName[] = {std::byte{'E'}, std::byte{'x'}, std::byte{'i'},
                                 std::byte{'f'}, std::byte{0},   std::byte{0}};
  if (segment.size() < 6 || !std::ranges::equal(segment.first(6), kName)) return 1;
  return exif_orientation(segment.subspan(6));
}

}  // namespace

bool looks_like_jpeg(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 3 && byte_at(bytes, 0) == 0xFF && byte_at(bytes, 1) == kStartOfImage &&
         byte_at(bytes, 2) == 0xFF;
}

Result<ImageHeader> parse_jpeg_header(std::span<const std::byte> bytes) {
  MarkerReader reader(bytes);
  ImageHeader header{.kind = ImageKind::kJpeg, .size = {}};
  Frame frame;
  while (reader.next()) {
    if (reader.marker() == kApp1 && header.orientation == 1) {
      header.orientation = app1_orientation(reader.segment());
    } else if (is_frame(reader.marker())) {
      if (!frame.components.empty()) return corrupt("it has two frames");
      HEADRACE_TRY_ASSIGN(frame, parse_frame(reader.marker(), reader.segment()));
    } else if (reader.marker() == kStartOfScan) {
      if (frame.components.empty()) return corrupt("its pixels come before its size");
      const auto scanned = reader.segment().empty() ? 0 : byte_at(reader.segment(), 0);
      header.size = frame.size;
      header.codec_bytes = codec_bytes(frame, scanned == frame.components.size());
      return header;
    }
  }
  return corrupt("it ends inside of its header");
}

}  // namespace headrace::detail
