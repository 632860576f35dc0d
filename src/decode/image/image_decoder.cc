// One value: header, plan, tables, then rows from the codec through the resizer to the batch.
#include "decode/image/image_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "decode/image/augment.h"
#include "decode/image/image_file.h"
#include "decode/image/image_plan.h"
#include "decode/image/orient.h"
#include "decode/image/pixel_writer.h"
#include "decode/image/ragged_header.h"
#include "decode/image/resizer.h"
#include "decode/image/scratch.h"

namespace headrace::detail {
namespace {

/// A JPEG's fraction to decode at: the least whose source is still twice the result. libjpeg-turbo
/// has others, without vectors: 3/8 takes longer than 4/8, and 5/8 to 7/8 longer than all pixels
/// (bench/decode_bench on photographs of 5120 x 2880, AMD EPYC of 2023).
std::uint32_t choose_eighths(const ImageOptions& options, const ImageHeader& header,
                             const ImagePlan& plan) noexcept {
  if (options.is_exact || header.kind != ImageKind::kJpeg ||
      options.interpolation == Interpolation::kNearest)
    return 8;
  for (const std::uint32_t eighths : {1U, 2U, 4U}) {
    if (std::uint64_t{plan.source.width} * eighths >= std::uint64_t{16} * plan.resized.width &&
        std::uint64_t{plan.source.height} * eighths >= std::uint64_t{16} * plan.resized.height)
      return eighths;
  }
  return 8;
}

/// One axis of a plan.
struct Axis {
  std::uint32_t begin;
  std::uint32_t length;
  std::uint32_t whole;
  std::uint32_t resized;
  std::uint32_t window_begin;
  std::uint32_t window_count;
  bool is_reversed;  ///< It is seen from where the stored axis ends.
};

/// A fraction of an axis is rounded up to whole pixels: the last one stored covers more than there
/// is (of 601 pixels at 1/8, 76 that cover 608). Seen in reverse, that is in front of the first.
AxisRequest axis_request(const Axis& axis, std::uint32_t eighths, Interpolation interpolation) {
  const double scale = eighths / 8.0;
  const double shift =
      axis.is_reversed ? scaled_length(axis.whole, eighths) - axis.whole * scale : 0;
  const double begin = axis.begin * scale + shift;
  const double end = (axis.begin + axis.length) * scale + shift;
  AxisRequest request{.begin = begin, .end = end};
  request.clip_begin = static_cast<std::uint32_t>(begin);
  request.clip_end =
      std::min(static_cast<std::uint32_t>(std::ceil(end)), scaled_length(axis.whole, eighths));
  request.out_size = axis.resized;
  request.out_begin = axis.window_begin;
  request.out_count = axis.window_count;
  request.interpolation = interpolation;
  return request;
}

/// The window's rows into their place of the canvas; zeros to their left and right.
class CanvasRows final : public WindowRows {
 public:
  CanvasRows(const ImagePlan& plan, std::uint32_t channels, PixelWriter& writer) noexcept
      : plan_(plan), writer_(writer) {
    const std::uint32_t behind = plan.canvas.width - plan.x - plan.window.width;
    left_bytes_ = std::size_t{plan.is_mirrored ? behind : plan.x} * channels;
    window_bytes_ = std::size_t{plan.window.width} * channels;
  }
  std::uint8_t* begin_row(std::uint32_t y) noexcept override {
    std::uint8_t* row = writer_.begin_row(canvas_row(y));
    std::memset(row, 0, left_bytes_);
    std::memset(row + left_bytes_ + window_bytes_, 0,
                writer_.row_bytes() - left_bytes_ - window_bytes_);
    return row + left_bytes_;
  }
  void finish_row(std::uint32_t y) noexcept override { writer_.finish_row(canvas_row(y)); }

  /// The rows above and below the window.
  void write_rest() noexcept {
    for (std::uint32_t y = 0; y < plan_.canvas.height; ++y) {
      if (y >= plan_.y && y - plan_.y < plan_.window.height) continue;
      const std::uint32_t row = plan_.is_upside_down ? plan_.canvas.height - 1 - y : y;
      std::memset(writer_.begin_row(row), 0, writer_.row_bytes());
      writer_.finish_row(row);
    }
  }

 private:
  std::uint32_t canvas_row(std::uint32_t y) const noexcept {
    const std::uint32_t row = plan_.y + y;
    return plan_.is_upside_down ? plan_.canvas.height - 1 - row : row;
  }
  const ImagePlan& plan_;
  PixelWriter& writer_;
  std::size_t left_bytes_;
  std::size_t window_bytes_;
};

/// Across and down; kept by the thread, so that their memory is.
struct Tables {
  ResizeTable across;
  ResizeTable down;
  /// What they were made for: images of one size often follow each other.
  AxisRequest across_request;
  AxisRequest down_request;
};

void make_table(const AxisRequest& request, ResizeTable& table, AxisRequest& made_for) {
  if (request == made_for) return;
  make_resize_table(request, table);
  made_for = request;
}

Tables& thread_tables() noexcept {
  thread_local Tables tables;
  return tables;
}

/// As Scratch::trim().
void trim_tables() noexcept {
  constexpr std::size_t kMostKeptWeights = 1 << 19;
  Tables& tables = thread_tables();
  if (tables.across.weights.capacity() + tables.down.weights.capacity() > kMostKeptWeights)
    tables = {};
}

const Tables& make_tables(const ImagePlan& plan, const ImageHeader& header, std::uint32_t eighths,
                          Interpolation interpolation) {
  const ImageSize whole = oriented(header.size, header.orientation);
  const Turn& turn = turn_of(header.orientation);
  Tables& tables = thread_tables();
  AxisRequest across =
      axis_request({plan.source.x, plan.source.width, whole.width, plan.resized.width,
                    plan.window.x, plan.window.width, turn.is_mirrored},
                   eighths, interpolation);
  across.is_flipped = plan.is_mirrored;
  make_table(across, tables.across, tables.across_request);
  make_table(axis_request({plan.source.y, plan.source.height, whole.height, plan.resized.height,
                           plan.window.y, plan.window.height, turn.is_upside_down},
                          eighths, interpolation),
             tables.down, tables.down_request);
  return tables;
}

/// At most, beside the output: what is decoded at once, what lies between the passes, their tables.
std::uint64_t workspace_bytes(const ImageHeader& header, const ImageOptions& options,
                              const ImagePlan& plan) noexcept {
  const std::uint32_t eighths =
      options.random_resized_crop ? 8 : choose_eighths(options, header, plan);
  const std::uint64_t height = scaled_length(header.size.height, eighths);
  const std::uint64_t width = scaled_length(header.size.width, eighths);
  const std::uint64_t channels = channel_count(options.mode);
  const ImageSize seen = oriented(
      {scaled_length(header.size.height, eighths), scaled_length(header.size.width, eighths)},
      header.orientation);
  std::uint64_t bytes = header.codec_bytes + height * width * header.whole_channels;
  bytes += (width + 64) * 4 * 8 + 4 * kRowPadding;
  if (header.orientation != 1) bytes += height * width * channels;
  const std::uint64_t taps = 4 * (std::uint64_t{seen.height} / plan.resized.height + 2) + 2;
  bytes += Resizer::workspace_bytes(taps, std::uint64_t{plan.canvas.width} * channels);
  bytes += PixelWriter::workspace_bytes(plan.canvas);
  if (is_augmented(options))
    bytes += std::uint64_t{plan.canvas.height} * plan.canvas.width * channels * 2;
  return bytes + resize_table_bytes(seen.height, plan.canvas.height) +
         resize_table_bytes(seen.width, plan.canvas.width);
}

Status no_memory() { return {Code::kExhausted, "no memory to decode an image"}; }

/// Decodes and resizes what the plan shows.
Status write_window(std::span<const std::byte> value, const ImageHeader& header,
                    const ImageOptions& options, const ImagePlan& plan, WindowRows& out) {
  const std::uint32_t channels = channel_count(options.mode);
  const std::uint32_t eighths = choose_eighths(options, header, plan);
  const Tables& tables = make_tables(plan, header, eighths, options.interpolation);
  Resizer resizer(tables.across, tables.down, channels, out);
  if (!resizer.is_ready()) return no_memory();
  const ImageSize scaled{scaled_length(header.size.height, eighths),
                         scaled_length(header.size.width, eighths)};
  CodecRequest request{.region = {}, .eighths = eighths};
  request.mode = options.mode;
  request.allows_truncated = options.allows_truncated;
  request.region = stored_region(
      {tables.across.in_begin, tables.down.in_begin, tables.across.in_count, tables.down.in_count},
      scaled, header.orientation);
  if (header.orientation == 1) return decode_rows(value, header, request, resizer);
  OrientingSink sink({request.region.height, request.region.width}, header.orientation, channels);
  if (!sink.is_ready()) return no_memory();
  Status status = decode_rows(value, header, request, sink);
  if (status.ok()) sink.give(resizer);
  return status;
}

/// Whether it could be decoded, where nothing of it is shown.
Status check_whole(std::span<const std::byte> value, const ImageHeader& header,
                   const ImageOptions& options) {
  class Nowhere final : public RowSink {
   public:
    void take(const Rows&) noexcept override {}
  } nowhere;
  CodecRequest request{.region = {.width = 1, .height = 1}};
  request.mode = options.mode;
  request.allows_truncated = options.allows_truncated;
  return decode_rows(value, header, request, nowhere);
}

/// Everything but augmentations, into `out`.
Status write_plain(std::span<const std::byte> value, const ImageHeader& header,
                   const ImageOptions& options, const ImagePlan& plan, std::byte* out) {
  PixelWriter writer(options, plan.canvas, out);
  if (!writer.is_ready()) return no_memory();
  CanvasRows rows(plan, channel_count(options.mode), writer);
  rows.write_rest();
  if (plan.window.width == 0 || plan.window.height == 0) return check_whole(value, header, options);
  return write_window(value, header, options, plan, rows);
}

/// Augments bytes, in the batch itself where that has bytes.
Status write_augmented(std::span<const std::byte> value, const ImageHeader& header,
                       const ImageOptions& options, const ImagePlan& plan, std::uint64_t key,
                       std::byte* out) {
  ImageOptions bytes = options;
  bytes.type = PixelType::kUint8;
  bytes.layout = PixelLayout::kHwc;
  Canvas canvas{.size = plan.canvas, .channels = channel_count(options.mode)};
  PixelWriter writer(options, plan.canvas, out);
  canvas.pixels = writer.is_direct() ? reinterpret_cast<std::uint8_t*>(out)
                                     : thread_scratch().take(ScratchUse::kCanvas, canvas.bytes());
  if (!writer.is_ready() || canvas.pixels == nullptr) return no_memory();
  HEADRACE_TRY(
      write_plain(value, header, bytes, plan, reinterpret_cast<std::byte*>(canvas.pixels)));
  HEADRACE_TRY(augment(options, key, canvas));
  if (writer.is_direct()) return {};
  for (std::uint32_t y = 0; y < plan.canvas.height; ++y) {
    std::memcpy(writer.begin_row(y), canvas.pixels + y * writer.row_bytes(), writer.row_bytes());
    writer.finish_row(y);
  }
  return {};
}

}  // namespace

Result<ImageHeader> ImageDecoder::header_of(std::span<const std::byte> value) const {
  HEADRACE_TRY_ASSIGN(ImageHeader header, parse_image_header(value, is_pil_));
  if (!options_.applies_orientation) header.orientation = 1;
  const std::uint64_t pixels = std::uint64_t{header.size.width} * header.size.height;
  if (pixels == 0) return Status(Code::kCorrupt, "an image without pixels");
  if (pixels > options_.max_pixels) {
    return Status(Code::kCorrupt, "an image of " + std::to_string(header.size.width) + " x " +
                                      std::to_string(header.size.height) +
                                      " pixels; more than max_pixels");
  }
  return header;
}

Result<DecodeNeeds> ImageDecoder::needs(std::span<const std::byte> value) const {
  HEADRACE_TRY_ASSIGN(const ImageHeader header, header_of(value));
  const ImageSize size = oriented(header.size, header.orientation);
  const ImagePlan plan = plan_image(options_, size, 0);
  const std::uint64_t pixels = std::uint64_t{plan.canvas.height} * plan.canvas.width;
  if (pixels > options_.max_pixels)
    return Status(Code::kCorrupt, "an image that would be resized to more than max_pixels");
  const std::uint32_t channels = channel_count(options_.mode);
  DecodeNeeds needs;
  needs.output_bytes = pixels * channels * sample_bytes(options_.type);
  if (!options_.output_size()) needs.output_bytes += ragged_header_bytes(options_, plan.canvas);
  needs.workspace_bytes = workspace_bytes(header, options_, plan);
  return needs;
}

Status ImageDecoder::decode(std::span<const std::byte> value, std::uint64_t key,
                            std::span<std::byte> out) const {
  HEADRACE_TRY_ASSIGN(const ImageHeader header, header_of(value));
  const ImagePlan plan = plan_image(options_, oriented(header.size, header.orientation), key);
  if (!options_.output_size()) out = write_ragged_header(options_, plan.canvas, out);
  Status status;
  if (is_augmented(options_)) {
    status = write_augmented(value, header, options_, plan, key, out.data());
  } else {
    status = write_plain(value, header, options_, plan, out.data());
  }
  thread_scratch().trim();
  trim_tables();
  return status;
}

}  // namespace headrace::detail
