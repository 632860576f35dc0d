// The first byte chooses options, the rest is a sound. That its size is checked never fails for
// anything but missing samples; decoded it becomes exactly the bytes that needs() says, or a
// Status.
#include <algorithm>
#include <memory>
#include <span>

#include "decode/audio/sound_size.h"
#include "headrace/decode.h"
#include "require.h"

namespace {

using namespace headrace;

void is_data_error(const Status& status) {
  require(status.ok() || status.code() == Code::kCorrupt);
}

/// Heads claim up to 2^33 frames; the loader reserves that memory before it decodes.
constexpr std::uint64_t kMostOutputBytes = 16 << 20;

void decode(const AudioOptions& options, std::span<const std::byte> value) {
  const auto decode = decode_audio(options);
  require(decode.has_value());
  auto columns = (*decode)->bind({.name = "data", .encoding = "bytes", .dtype = {}, .shape = {}});
  require(columns.has_value() && columns->size() == 1);
  const DecodedColumn& column = columns->front();
  auto needs = column.decoder->needs(value);
  if (!needs) return is_data_error(needs.error());
  require(column.output.is_ragged() || needs->output_bytes == column.output.fixed_size_bytes);
  if (needs->output_bytes > kMostOutputBytes) return;
  const auto out = std::make_unique<std::byte[]>(needs->output_bytes);
  is_data_error(column.decoder->decode(value, 0, {out.get(), needs->output_bytes}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  // Of its own, so that what reads behind the end is seen.
  const std::size_t count = size - 1;
  const auto value = std::make_unique<std::byte[]>(count);
  std::copy_n(reinterpret_cast<const std::byte*>(data + 1), count, value.get());
  is_data_error(detail::check_sound_size({value.get(), count}));
  if ((data[0] & 1) != 0) return 0;  // Many more of these a second than libsndfile reads.
  decode({.frames = (data[0] & 2) != 0 ? 100u : 0u,
          .channels = 1u + (data[0] >> 6),
          .is_mono = (data[0] & 4) != 0,
          .sample_rate = 0},
         {value.get(), count});
  return 0;
}
