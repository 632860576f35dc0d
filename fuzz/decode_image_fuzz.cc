// The first bytes choose options, the rest is an image: it becomes exactly the bytes that needs()
// says, or a Status.
#include <memory>
#include <span>

#include "headrace/decode.h"
#include "require.h"

namespace {

using namespace headrace;

ImageOptions options_of(unsigned first, unsigned second) {
  ImageOptions options;
  options.max_pixels = 1 << 18;
  options.allows_truncated = (first & 1) != 0;
  options.interpolation = static_cast<Interpolation>((first >> 1) % 3);
  options.mode = static_cast<PixelMode>((first >> 3) % 3);
  options.type = static_cast<PixelType>((first >> 5) % 4);
  options.layout = static_cast<PixelLayout>(first >> 7);
  options.horizontal_flip = 0.5;
  options.vertical_flip = 0.5;
  if ((second & 7) == 1) options.resize = ImageSize{7, 33};
  if ((second & 7) == 2) options.resize_shorter = 19;
  if ((second & 7) >= 3 && (second & 7) <= 5) options.crop = ImageSize{21, 17};
  options.is_crop_random = (second & 7) == 4;
  if ((second & 7) == 5) options.pad = {3, 0, 70, 1};
  if ((second & 7) == 6) options.random_resized_crop = ImageSize{16, 16};
  if ((second & 8) != 0) options.jitter = {0.4, 0.4, 0.4, 0.1};
  if ((second & 16) != 0) options.rand_augment.operations = 2;
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  auto decode = decode_image(options_of(data[0], data[1]));
  require(decode.has_value());
  const bool is_pil = (data[1] & 32) != 0;
  auto columns = (*decode)->bind(
      {.name = "image", .encoding = is_pil ? "pil" : "bytes", .dtype = {}, .shape = {}});
  require(columns.has_value());
  const DecodedColumn* const bound = columns->data();
  // Of their own, so that what reads behind the end is seen.
  const std::size_t count = size - 2;
  const auto value = std::make_unique<std::byte[]>(count);
  for (std::size_t i = 0; i < count; ++i) value[i] = static_cast<std::byte>(data[i + 2]);
  auto needs = bound->decoder->needs({value.get(), count});
  if (!needs) return 0;
  require(bound->output.is_ragged() || needs->output_bytes == bound->output.fixed_size_bytes);
  const auto out = std::make_unique<std::byte[]>(needs->output_bytes);
  const Status status =
      bound->decoder->decode({value.get(), count}, data[0], {out.get(), needs->output_bytes});
  require(status.ok() || status.code() == Code::kCorrupt || status.code() == Code::kUnsupported ||
          status.code() == Code::kExhausted);
  return 0;
}
