// - libjpeg reports errors by a longjmp, so the functions between setjmp and the library hold
//   nothing that has a destructor.
// - Warnings that mean lost pixels end decoding, unless a truncated file is allowed. Bytes between
//   markers lose nothing: well-known datasets have such files.
// - A region takes some columns more than it shows: upsampled colour at its edges depends on the
//   neighbours.
#include <cstddef>
#include <cstdio>
// Behind those that they need.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "decode/image/codecs.h"
#include "decode/image/color.h"
#include "decode/image/scratch.h"

namespace headrace::detail {
namespace {

/// Rows decoded at a time: they stay in the nearest cache until they are resized.
constexpr std::uint32_t kRowsAtOnce = 8;
/// Each costs a walk over all coefficients, and a few bytes make one. Real files have about 10.
constexpr int kMostScans = 500;

struct Job {
  jpeg_decompress_struct decompress;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf stop;
  char message[JMSG_LENGTH_MAX];
  bool is_out_of_memory;
  bool allows_truncated;
};

Job& job_of(j_common_ptr common) noexcept { return *static_cast<Job*>(common->client_data); }

[[noreturn]] void leave(j_common_ptr common) {
  Job& job = job_of(common);
  common->err->format_message(common, job.message);
  job.is_out_of_memory = common->err->msg_code == JERR_OUT_OF_MEMORY;
  std::longjmp(job.stop, 1);
}

bool loses_pixels(int message_code) noexcept {
  switch (message_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_BOGUS_ICC:
      return false;
    default:
      return true;
  }
}

void on_message(j_common_ptr common, int level) {
  if (level >= 0) return;  // Traces.
  if (!job_of(common).allows_truncated && loses_pixels(common->err->msg_code)) leave(common);
}

void on_output(j_common_ptr) {}

void on_progress(j_common_ptr common) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(common);
  if (decompress->input_scan_number <= kMostScans) return;
  Job& job = job_of(common);
  std::snprintf(job.message, sizeof(job.message), "more than %d scans", kMostScans);
  std::longjmp(job.stop, 1);
}

void set_up(Job& job, bool allows_truncated) {
  job.decompress.err = jpeg_std_error(&job.errors);
  job.errors.error_exit = leave;
  job.errors.emit_message = on_message;
  job.errors.output_message = on_output;
  job.decompress.client_data = &job;
  job.allows_truncated = allows_truncated;
  job.is_out_of_memory = false;
  job.progress = {};
  job.progress.progress_monitor = on_progress;
}

J_COLOR_SPACE color_space(const jpeg_decompress_struct& from, PixelMode mode) noexcept {
  if (from.num_components == 4) return JCS_CMYK;
  switch (mode) {
    case PixelMode::kGrey:
      return JCS_GRAYSCALE;
    case PixelMode::kColor:
      return JCS_RGB;
    case PixelMode::kColorAlpha:
      break;
  }
  return JCS_EXT_RGBA;
}

/// The rows from libjpeg, and what of them the region shows.
struct Strip {
  std::uint8_t* rows = nullptr;
  std::size_t stride = 0;
  std::uint32_t left_bytes = 0;
};

void give_rows(Job& job, const CodecRequest& request, const Strip& strip, RowSink& sink) {
  jpeg_decompress_struct& from = job.decompress;
  const std::uint32_t end = request.region.y + request.region.height;
  while (from.output_scanline < end) {
    const std::uint32_t wanted = std::min(kRowsAtOnce, end - from.output_scanline);
    std::uint32_t have = 0;
    while (have < wanted) {
      JSAMPROW targets[kRowsAtOnce];
      for (std::uint32_t i = have; i < wanted; ++i) targets[i] = strip.rows + i * strip.stride;
      const std::uint32_t got = jpeg_read_scanlines(&from, targets + have, wanted - have);
      if (got == 0) break;  // Nothing suspends a source in memory.
      have += got;
    }
    if (from.out_color_space == JCS_CMYK) {
      for (std::uint32_t i = 0; i < have; ++i)
        inverted_cmyk_to(request.mode, from.output_width, strip.rows + i * strip.stride);
    }
    sink.take({strip.rows + strip.left_bytes, strip.stride, have});
  }
}

/// Goes over what comes behind the region, so that a file that is broken there is found broken
/// whatever is shown of it. Of several scans all have been read by then.
void read_rest(jpeg_decompress_struct& from, const Strip& strip) {
  if (jpeg_has_multiple_scans(&from) != 0) return;
  const std::uint32_t left = from.output_height - from.output_scanline;
  if (left == 0) return;
  // To skip all of them would be to read none.
  if (left > 1) jpeg_skip_scanlines(&from, left - 1);
  JSAMPROW last = strip.rows;
  jpeg_read_scanlines(&from, &last, 1);
}

/// Whether libjpeg smooths over blocks, as it does where a progressive file lacks scans: then each
/// block depends on its neighbours, and they on all columns.
bool is_smoothed(const jpeg_decompress_struct& from) noexcept {
  // Coefficients that it guesses; those of which all bits have come have 0.
  constexpr int kGuessed = 9;
  if (!from.progressive_mode || from.coef_bits == nullptr) return false;
  for (int c = 0; c < from.num_components; ++c) {
    for (int k = 1; k <= kGuessed; ++k) {
      if (from.coef_bits[c][k] != 0) return true;
    }
  }
  return false;
}

/// Limits what is decoded to the region's columns; returns how many more lie to its left.
std::uint32_t crop_columns(jpeg_decompress_struct& from, const Rect& region) {
  // Upsampling looks 1 sample of colour, at most 4 pixels, to each side; 16 for good measure, as
  // what is taken begins at a whole block anyway.
  constexpr std::uint32_t kMargin = 16;
  if (region.width + 4 * kMargin >= from.output_width || is_smoothed(from)) return region.x;
  JDIMENSION left = region.x > kMargin ? region.x - kMargin : 0;
  JDIMENSION width = std::min(region.x + region.width + kMargin, from.output_width) - left;
  jpeg_crop_scanline(&from, &left, &width);
  return region.x - left;
}

Status run(Job& job, std::span<const std::byte> bytes, const ImageHeader& header,
           const CodecRequest& request, RowSink& sink) {
  jpeg_decompress_struct& from = job.decompress;
  jpeg_mem_src(&from, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&from, TRUE);
  if (from.image_width != header.size.width || from.image_height != header.size.height)
    return {Code::kCorrupt, "JPEG: it has two sizes"};
  from.progress = &job.progress;
  from.scale_num = request.eighths;
  from.scale_denom = 8;
  from.out_color_space = color_space(from, request.mode);
  jpeg_start_decompress(&from);
  Strip strip;
  const auto channels = static_cast<std::uint32_t>(from.output_components);
  // Of the mode: rows of CMYK are converted before they are cut.
  strip.left_bytes = crop_columns(from, request.region) * channel_count(request.mode);
  strip.stride = std::size_t{from.output_width} * channels;
  strip.rows = thread_scratch().take(ScratchUse::kRows, strip.stride * kRowsAtOnce + kRowPadding);
  if (strip.rows == nullptr) return {Code::kExhausted, "JPEG: no memory for its rows"};
  if (request.region.y > 0) jpeg_skip_scanlines(&from, request.region.y);
  give_rows(job, request, strip, sink);
  if (!request.allows_truncated) read_rest(from, strip);
  return {};
}

}  // namespace

Status decode_jpeg(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink) {
  Job job{};
  set_up(job, request.allows_truncated);
  if (setjmp(job.stop) != 0) {
    jpeg_destroy_decompress(&job.decompress);
    return {job.is_out_of_memory ? Code::kExhausted : Code::kCorrupt,
            std::string("JPEG: ") + job.message};
  }
  jpeg_create_decompress(&job.decompress);
  Status status = run(job, bytes, header, request, sink);
  jpeg_destroy_decompress(&job.decompress);
  return status;
}

}  // namespace headrace::detail
