// Sounds: what they become, and that those which were cut off are no shorter sounds.
#include <gtest/gtest.h>
#include <sndfile.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/endian.h"
#include "base/random.h"
#include "headrace/decode.h"

namespace headrace {
namespace {

constexpr std::uint64_t kFrames = 4001;

/// What libsndfile writes to.
struct Target {
  std::string bytes;
  sf_count_t at = 0;
};
Target& target_of(void* user) { return *static_cast<Target*>(user); }

std::string make_sound(int format, std::uint64_t frames = kFrames, int channels = 1) {
  SF_VIRTUAL_IO io = {
      .get_filelen = [](void* user) -> sf_count_t {
        return static_cast<sf_count_t>(target_of(user).bytes.size());
      },
      .seek = [](sf_count_t offset, int whence, void* user) -> sf_count_t {
        Target& to = target_of(user);
        const auto size = static_cast<sf_count_t>(to.bytes.size());
        return to.at = offset + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? to.at : size);
      },
      .read = [](void* out, sf_count_t count, void* user) -> sf_count_t {
        Target& from = target_of(user);
        count = std::min(count, static_cast<sf_count_t>(from.bytes.size()) - from.at);
        std::memcpy(out, from.bytes.data() + from.at, static_cast<std::size_t>(count));
        from.at += count;
        return count;
      },
      .write = [](const void* in, sf_count_t count, void* user) -> sf_count_t {
        Target& to = target_of(user);
        const auto end = static_cast<std::size_t>(to.at + count);
        to.bytes.resize(std::max(to.bytes.size(), end));
        std::memcpy(to.bytes.data() + to.at, in, static_cast<std::size_t>(count));
        to.at += count;
        return count;
      },
      .tell = [](void* user) -> sf_count_t { return target_of(user).at; }};
  Target target;
  SF_INFO info{};
  info.samplerate = 16000;
  info.channels = channels;
  info.format = format;
  SNDFILE* file = sf_open_virtual(&io, SFM_WRITE, &info, &target);
  EXPECT_NE(file, nullptr) << sf_strerror(nullptr);
  Random random(1);
  std::vector<float> samples(frames * static_cast<std::uint64_t>(channels));
  for (float& sample : samples)
    sample = static_cast<float>(random.below(1 << 14)) / (1 << 14) - 0.5F;
  sf_writef_float(file, samples.data(), static_cast<sf_count_t>(frames));
  sf_close(file);
  return target.bytes;
}

Result<std::vector<std::byte>> decoded(const std::string& value, const AudioOptions& options = {}) {
  HEADRACE_TRY_ASSIGN(const auto decode, decode_audio(options));
  HEADRACE_TRY_ASSIGN(
      const DecodedColumns columns,
      decode->bind({.name = "sound", .encoding = "bytes", .dtype = {}, .shape = {}}));
  const auto bytes = std::as_bytes(std::span(value));
  HEADRACE_TRY_ASSIGN(const DecodeNeeds needs, columns.front().decoder->needs(bytes));
  std::vector<std::byte> out(needs.output_bytes);
  HEADRACE_TRY(columns.front().decoder->decode(bytes, 1, out));
  return out;
}

Code code_of(const std::string& value, const AudioOptions& options = {}) {
  auto out = decoded(value, options);
  return out ? Code::kOk : out.error().code();
}

/// Frames of a sound of its own length.
std::uint64_t frames_of(const std::string& value) {
  auto out = decoded(value);
  EXPECT_TRUE(out) << out.error().message();
  return out ? load_le<std::uint64_t>(out->data() + 1) : 0;
}

constexpr int kPcm = SF_FORMAT_PCM_16;
constexpr int kWav = SF_FORMAT_WAV | kPcm;
constexpr int kVoc = SF_FORMAT_VOC | kPcm;
constexpr int kOgg = SF_FORMAT_OGG | SF_FORMAT_VORBIS;

struct Kind {
  const char* name;
  int format;
};
constexpr Kind kKinds[] = {{"WAV", kWav},
                           {"WAV of floats", SF_FORMAT_WAV | SF_FORMAT_FLOAT},
                           {"WAV of 8 bits", SF_FORMAT_WAV | SF_FORMAT_PCM_U8},
                           {"WAV, extensible", SF_FORMAT_WAVEX | kPcm},
                           {"WAV, ADPCM", SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM},
                           {"RIFX", kWav | SF_ENDIAN_BIG},
                           {"RF64", SF_FORMAT_RF64 | kPcm},
                           {"W64", SF_FORMAT_W64 | kPcm},
                           {"AIFF", SF_FORMAT_AIFF | kPcm},
                           {"AIFF-C", SF_FORMAT_AIFF | SF_FORMAT_ULAW},
                           {"AIFF-C of floats", SF_FORMAT_AIFF | SF_FORMAT_FLOAT},
                           {"AU", SF_FORMAT_AU | kPcm},
                           {"AU, little-endian", SF_FORMAT_AU | kPcm | SF_ENDIAN_LITTLE},
                           {"CAF", SF_FORMAT_CAF | kPcm},
                           {"NIST SPHERE", SF_FORMAT_NIST | kPcm},
                           {"NIST SPHERE, u-law", SF_FORMAT_NIST | SF_FORMAT_ULAW},
                           {"VOC", kVoc},
                           {"16SV", SF_FORMAT_SVX | kPcm},
                           {"FLAC", SF_FORMAT_FLAC | kPcm},
                           {"Ogg", kOgg}};

TEST(Audio, IsBadWhereItIsCutOff) {
  for (const Kind& kind : kKinds) {
    std::string file = make_sound(kind.format);
    EXPECT_GE(frames_of(file), kFrames) << kind.name;
    // What stands behind the samples: the byte that makes their number even.
    if (file.back() == '\0' && kind.format == (SF_FORMAT_WAV | SF_FORMAT_PCM_U8)) file.pop_back();
    if (kind.format == kVoc) file.pop_back();  // That there is no more.
    AudioOptions fixed;
    fixed.frames = kFrames;
    EXPECT_EQ(code_of(file, fixed), Code::kOk) << kind.name;
    // libsndfile loses memory where an Ogg ends inside of its headers.
    const std::size_t first = kind.format == kOgg ? file.size() * 3 / 4 : 0;
    for (std::size_t size = first; size < file.size(); size += 10) {
      EXPECT_EQ(code_of(file.substr(0, size)), Code::kCorrupt) << kind.name << " at " << size;
      EXPECT_EQ(code_of(file.substr(0, size), fixed), Code::kCorrupt)
          << kind.name << " at " << size;
    }
    EXPECT_EQ(code_of(file.substr(0, file.size() - 1)), Code::kCorrupt) << kind.name;
  }
}

TEST(Audio, OfNistMayCountSamplesOfAllChannels) {
  std::string file = make_sound(SF_FORMAT_NIST | kPcm, kFrames, 2);
  EXPECT_EQ(code_of(file), Code::kOk);
  EXPECT_EQ(code_of(file.substr(0, file.size() - 4)), Code::kCorrupt);
  const std::string by_the_book = "sample_count -i " + std::to_string(kFrames);
  const std::size_t at = file.find(by_the_book);
  ASSERT_NE(at, std::string::npos);
  file.replace(at, by_the_book.size(), "sample_count -i " + std::to_string(2 * kFrames));
  EXPECT_EQ(code_of(file), Code::kOk);
}

TEST(Audio, IsWholeWithoutWhatStandsBehindItsSamples) {
  // 8 bits and an odd number of frames: a byte of padding, then a chunk of text.
  const std::string odd = make_sound(SF_FORMAT_WAV | SF_FORMAT_PCM_U8);
  const std::size_t end = odd.find("data") + 8 + kFrames;
  EXPECT_EQ(frames_of(odd.substr(0, end)), kFrames);
  const std::string text = odd.substr(0, end) + std::string("\0LIST\x40\0\0\0INFO", 13);
  for (std::size_t size = end; size <= text.size(); ++size)
    EXPECT_EQ(frames_of(text.substr(0, size)), kFrames) << size;
}

TEST(Audio, IsFoundBehindOtherChunks) {
  std::string file = make_sound(kWav);
  file.insert(file.find("data"), std::string("note\x03\0\0\0abc\0", 12));
  EXPECT_EQ(frames_of(file), kFrames);
  EXPECT_EQ(code_of(file.substr(0, file.size() - 2)), Code::kCorrupt);
}

TEST(Audio, MayComeFromAStreamThatKnewNoSize) {
  const std::string file = make_sound(kWav);
  const std::size_t at = file.find("data") + 4;
  // A recording that was not closed; ffmpeg's; SoX's, in whole blocks of 2 and 12 bytes; ALSA's.
  for (const std::uint32_t size :
       {0U, 0xFFFFFFFFU, 0x7FFFF000U, 0x7FFFEFF8U, 0x80000000U, 0x7FFFFF00U}) {
    std::string stream = file;
    store_le(reinterpret_cast<std::byte*>(stream.data()) + 4, std::max(size, 8U));
    store_le(reinterpret_cast<std::byte*>(stream.data()) + at, size);
    EXPECT_EQ(frames_of(stream), kFrames) << size;
    EXPECT_EQ(frames_of(stream.substr(0, stream.size() - 1000)), kFrames - 500) << size;
  }
}

TEST(Audio, IsBadWhereRf64SaysMoreThanThereIs) {
  const std::string file = make_sound(SF_FORMAT_RF64 | kPcm);
  const std::size_t size_at = file.find("ds64") + 16;
  const auto with_size = [&](std::uint64_t size) {
    std::string out = file;
    store_le(reinterpret_cast<std::byte*>(out.data()) + size_at, size);
    return out;
  };
  ASSERT_EQ(with_size(2 * kFrames), file);
  EXPECT_EQ(code_of(with_size(2 * kFrames + 1)), Code::kCorrupt);
  EXPECT_EQ(code_of(with_size(std::uint64_t{5} << 30)), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace
