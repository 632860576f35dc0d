// WAV, FLAC, Ogg and what else libsndfile reads, from memory, to float32 frames in -1 .. 1. The
// library is told nothing but the bytes: no file, no log. It takes what is left of a file for what
// was stored, so that whether samples are missing is found out beside it.
#include <sndfile.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "decode/array/byte_column.h"
#include "decode/audio/sound_size.h"
#include "headrace/decode.h"

namespace headrace {
namespace {

struct Bytes {
  std::span<const std::byte> all;
  sf_count_t at = 0;
};

sf_count_t size_of(void* user) {
  return static_cast<sf_count_t>(static_cast<Bytes*>(user)->all.size());
}
sf_count_t seek(sf_count_t offset, int whence, void* user) {
  auto& bytes = *static_cast<Bytes*>(user);
  const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? bytes.at : size_of(user);
  bytes.at = std::clamp<sf_count_t>(base + offset, 0, size_of(user));
  return bytes.at;
}
sf_count_t read(void* out, sf_count_t count, void* user) {
  auto& bytes = *static_cast<Bytes*>(user);
  const sf_count_t taken = std::clamp<sf_count_t>(count, 0, size_of(user) - bytes.at);
  if (taken > 0) std::memcpy(out, bytes.all.data() + bytes.at, static_cast<std::size_t>(taken));
  bytes.at += taken;
  return taken;
}
sf_count_t write(const void*, sf_count_t, void*) { return 0; }
sf_count_t tell(void* user) { return static_cast<Bytes*>(user)->at; }

/// A sound that is open over bytes, which must outlive it.
class Sound {
 public:
  explicit Sound(std::span<const std::byte> value) : bytes_{.all = value} {
    SF_VIRTUAL_IO io = {
        .get_filelen = size_of, .seek = seek, .read = read, .write = write, .tell = tell};
    file_.reset(sf_open_virtual(&io, SFM_READ, &info_, &bytes_));
  }
  bool is_open() const noexcept { return file_ != nullptr; }
  const SF_INFO& info() const noexcept { return info_; }
  SNDFILE* file() noexcept { return file_.get(); }

 private:
  struct Close {
    void operator()(SNDFILE* file) const noexcept { sf_close(file); }
  };
  Bytes bytes_;
  SF_INFO info_ = {};
  std::unique_ptr<SNDFILE, Close> file_;
};

/// Frames that are converted at a time.
constexpr std::uint64_t kFramesATime = 4096;

class AudioDecoder final : public ValueDecoder {
 public:
  explicit AudioDecoder(const AudioOptions& options) : options_(options) {}

  Result<DecodeNeeds> needs(std::span<const std::byte> value) const override {
    Sound sound(value);
    HEADRACE_TRY(check(sound, value));
    const std::uint64_t frames = frames_of(sound);
    const std::uint64_t channels = channels_of(sound);
    return DecodeNeeds{
        .output_bytes = header_bytes() + frames * channels * sizeof(float),
        // Its codec's own state, and frames before they are mixed.
        .workspace_bytes =
            (std::uint64_t{256} << 10) +
            kFramesATime * static_cast<std::uint64_t>(sound.info().channels) * sizeof(float)};
  }

  Status decode(std::span<const std::byte> value, std::uint64_t,
                std::span<std::byte> out) const override {
    Sound sound(value);
    HEADRACE_TRY(check(sound, value));
    const std::uint64_t frames = frames_of(sound);
    const std::uint64_t channels = channels_of(sound);
    if (options_.frames == 0) write_header(frames, channels, out);
    std::span<std::byte> samples = out.subspan(header_bytes());
    const std::uint64_t stored = static_cast<std::uint64_t>(sound.info().frames);
    const std::uint64_t real = std::min(frames, stored);
    HEADRACE_TRY(read_frames(sound, real, samples));
    std::fill(samples.begin() + static_cast<std::ptrdiff_t>(real * channels * sizeof(float)),
              samples.end(), std::byte{0});
    return {};
  }

  std::string identity() const override {
    return "audio 2 " + std::to_string(options_.frames) + " " + std::to_string(options_.channels) +
           " " + std::to_string(options_.is_mono ? 1 : 0) + ", " + sf_version_string();
  }

 private:
  /// Of the shape in front of a value of its own length: MDS's ndarray header, two axes of 8 bytes.
  static constexpr std::size_t kHeaderBytes = 1 + 2 * 8;

  std::size_t header_bytes() const noexcept { return options_.frames == 0 ? kHeaderBytes : 0; }

  static void write_header(std::uint64_t frames, std::uint64_t channels, std::span<std::byte> out) {
    out[0] = std::byte{2 << 2 | 3};
    std::memcpy(out.data() + 1, &frames, 8);
    std::memcpy(out.data() + 9, &channels, 8);
  }

  Status check(const Sound& sound, std::span<const std::byte> value) const {
    if (!sound.is_open())
      return Status(Code::kCorrupt,
                    std::string("no sound that can be read: ") + sf_strerror(nullptr));
    const SF_INFO& info = sound.info();
    // Streams say no length; a header can say any.
    constexpr sf_count_t kMostFrames = sf_count_t{1} << 33;
    if (info.frames < 0 || info.frames > kMostFrames || info.channels < 1 || info.channels > 1024)
      return Status(Code::kCorrupt, "a sound of " + std::to_string(info.frames) + " frames and " +
                                        std::to_string(info.channels) + " channels");
    if (options_.sample_rate > 0 && info.samplerate != static_cast<int>(options_.sample_rate))
      return Status(Code::kCorrupt, "a sample rate of " + std::to_string(info.samplerate) +
                                        " Hz where " + std::to_string(options_.sample_rate) +
                                        " are expected");
    if (options_.frames > 0 && !options_.is_mono &&
        info.channels != static_cast<int>(options_.channels))
      return Status(Code::kCorrupt, std::to_string(info.channels) + " channels where " +
                                        std::to_string(options_.channels) + " are expected");
    return detail::check_sound_size(value);
  }

  std::uint64_t frames_of(const Sound& sound) const {
    return options_.frames > 0 ? options_.frames : static_cast<std::uint64_t>(sound.info().frames);
  }
  std::uint64_t channels_of(const Sound& sound) const {
    return options_.is_mono ? 1 : static_cast<std::uint64_t>(sound.info().channels);
  }

  Status read_frames(Sound& sound, std::uint64_t frames, std::span<std::byte> out) const {
    const auto stored_channels = static_cast<std::uint64_t>(sound.info().channels);
    std::vector<float> some(kFramesATime * stored_channels);
    for (std::uint64_t done = 0; done < frames;) {
      const std::uint64_t want = std::min(kFramesATime, frames - done);
      const sf_count_t got =
          sf_readf_float(sound.file(), some.data(), static_cast<sf_count_t>(want));
      if (got <= 0)
        return Status(Code::kCorrupt, "it ends after " + std::to_string(done) + " of " +
                                          std::to_string(sound.info().frames) + " frames");
      const auto count = static_cast<std::uint64_t>(got);
      if (options_.is_mono) mix(some, stored_channels, count);
      const std::uint64_t frame_bytes = channels_of(sound) * sizeof(float);
      std::memcpy(out.data() + done * frame_bytes, some.data(), count * frame_bytes);
      done += count;
    }
    return {};
  }

  /// The mean of the channels.
  static void mix(std::vector<float>& frames, std::uint64_t channels, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count && channels > 1; ++i) {
      float sum = 0;
      for (std::uint64_t c = 0; c < channels; ++c) sum += frames[i * channels + c];
      frames[i] = sum / static_cast<float>(channels);
    }
  }

  const AudioOptions options_;
};

class Audio final : public Decode {
 public:
  explicit Audio(const AudioOptions& options) : options_(options) {}

  Result<DecodedColumns> bind(const OutputColumn& stored) const override {
    if (!detail::has_plain_bytes(stored)) return detail::not_plain_bytes(stored, "a sound");
    DecodedColumn column;
    if (options_.frames > 0) {
      column.output = array_column(
          stored.name, {.dtype = "float32",
                        .item_bytes = sizeof(float),
                        .shape = {options_.frames, options_.is_mono ? 1 : options_.channels}});
    } else {
      column.output.name = stored.name;
      column.output.encoding = "ndarray:float32";
    }
    column.decoder = std::make_shared<AudioDecoder>(options_);
    return DecodedColumns{std::move(column)};
  }

 private:
  const AudioOptions options_;
};

}  // namespace

Result<std::shared_ptr<const Decode>> decode_audio(const AudioOptions& options) {
  const auto wrong = [](const char* what) {
    return Status(Code::kInvalidArgument, std::string("audio options: ") + what);
  };
  if (options.frames > (std::uint64_t{1} << 33)) return wrong("frames is at most 2^33");
  if (options.channels < 1 || options.channels > 1024) return wrong("channels are 1 .. 1024");
  return std::shared_ptr<const Decode>(std::make_shared<Audio>(options));
}

}  // namespace headrace
