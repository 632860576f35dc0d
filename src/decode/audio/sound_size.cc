// - Only the heads of chunks are read, up to that of the samples. A file without one, or one that
//   cannot be followed, is left to whoever decodes it.
// - Who writes to a pipe does not know the size: 0, or a number that no such file reaches.
// - Padding behind the samples may be missing, and so may everything that stands behind them.
#include "decode/audio/sound_size.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace headrace::detail {
namespace {

/// How a format cuts a file into chunks: each a name, a size and the bytes.
struct ChunkForm {
  std::string_view mark;     ///< Of the file.
  std::string_view samples;  ///< Name of the chunk with the samples.
  std::size_t first;         ///< Where chunks begin.
  std::size_t name_bytes = 4;
  std::size_t size_bytes = 4;
  std::size_t alignment = 2;
  bool is_big_endian = false;
  bool counts_head = false;  ///< A chunk's size includes its name and size.
  std::size_t head_bytes() const noexcept { return name_bytes + size_bytes; }
};

constexpr ChunkForm kForms[] = {
    {.mark = "RIFF", .samples = "data", .first = 12},
    {.mark = "RF64", .samples = "data", .first = 12},
    {.mark = "BW64", .samples = "data", .first = 12},
    {.mark = "RIFX", .samples = "data", .first = 12, .is_big_endian = true},
    {.mark = "FORM", .samples = "SSND", .first = 12, .is_big_endian = true},
    {.mark = "caff",
     .samples = "data",
     .first = 8,
     .size_bytes = 8,
     .alignment = 1,
     .is_big_endian = true},
    // Names are GUIDs that begin as those of WAV.
    {.mark = "riff",
     .samples = "data",
     .first = 40,
     .name_bytes = 16,
     .size_bytes = 8,
     .alignment = 8,
     .counts_head = true}};

/// Of Amiga's 8SVX and 16SV, which begin as AIFF does.
constexpr ChunkForm kVoiceForm{
    .mark = "FORM", .samples = "BODY", .first = 12, .is_big_endian = true};

bool has_text(std::span<const std::byte> bytes, std::size_t at, std::string_view text) noexcept {
  return bytes.size() >= at + text.size() &&
         std::memcmp(bytes.data() + at, text.data(), text.size()) == 0;
}

std::uint64_t number_at(std::span<const std::byte> bytes, bool is_big_endian) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    value = value << 8 |
            std::to_integer<std::uint64_t>(bytes[is_big_endian ? i : bytes.size() - 1 - i]);
  return value;
}

/// ffmpeg writes the largest number, ALSA 2 GiB or a little less, SoX 0x7ffff000 to WAV and
/// 0x7f000000 to AIFF, both rounded down to whole frames.
bool is_known(std::uint64_t size, std::size_t size_bytes) noexcept {
  constexpr std::uint64_t kLeastPlaceholder = 0x7E000000, kLeastWide = std::uint64_t{1} << 63;
  return size > 0 && size < (size_bytes == 4 ? kLeastPlaceholder : kLeastWide);
}

Status compare(std::uint64_t size, std::size_t size_bytes, std::uint64_t there) {
  if (!is_known(size, size_bytes) || size <= there) return {};
  return {Code::kCorrupt, "it ends after " + std::to_string(there) + " of " + std::to_string(size) +
                              " bytes of its samples"};
}

Status check_chunks(std::span<const std::byte> bytes, const ChunkForm& form) {
  const std::size_t head = form.head_bytes();
  std::uint64_t wide_size = 0;
  for (std::size_t at = form.first; at + form.name_bytes <= bytes.size();) {
    const bool has_samples = has_text(bytes, at, form.samples);
    if (at + head > bytes.size()) {
      return has_samples ? Status(Code::kCorrupt, "it ends in front of its samples") : Status();
    }
    const std::uint64_t rest = bytes.size() - at - head;
    std::uint64_t size =
        number_at(bytes.subspan(at + form.name_bytes, form.size_bytes), form.is_big_endian);
    if (form.counts_head) size -= std::min<std::uint64_t>(size, head);
    if (has_samples) {
      const bool is_wide = size == 0xFFFFFFFF && wide_size > 0;
      return is_wide ? compare(wide_size, 8, rest) : compare(size, form.size_bytes, rest);
    }
    if (size > rest) return {};
    // RF64's sizes of more than 32 bits: that of the file, then that of the samples.
    if (has_text(bytes, at, "ds64") && size >= 16)
      wide_size = number_at(bytes.subspan(at + head + 8, 8), false);
    at += head +
          static_cast<std::size_t>((size + form.alignment - 1) / form.alignment * form.alignment);
  }
  return {};
}

/// One head: where samples begin, and their size.
Status check_au(std::span<const std::byte> bytes) {
  constexpr std::size_t kLeastHead = 24;
  if (bytes.size() < kLeastHead) return {};
  const bool is_big_endian = has_text(bytes, 0, ".snd");
  const std::uint64_t begin = number_at(bytes.subspan(4, 4), is_big_endian);
  if (begin > bytes.size()) return {};
  return compare(number_at(bytes.subspan(8, 4), is_big_endian), 4, bytes.size() - begin);
}

/// The number in a line "<name> -<type> <number>" of a head of text; 0: there is none.
std::uint64_t nist_number(std::string_view head, std::string_view name) {
  const std::size_t at = head.find(std::string("\n").append(name).append(" -"));
  std::uint64_t value = 0;
  if (at == std::string_view::npos) return value;
  const std::string_view rest = head.substr(at + name.size() + 2);
  const std::size_t blank = std::min(rest.find(' '), rest.size() - 1);
  std::from_chars(rest.data() + blank + 1, rest.data() + rest.size(), value);
  return value;
}

/// NIST SPHERE: two lines of eight bytes, of which the second is the size of the head, then lines
/// "<name> -<type> <value>". Packed ones ("pcm,embedded-shorten") are smaller than they say.
Status check_nist(std::span<const std::byte> bytes) {
  constexpr std::size_t kLeastHead = 1024;
  if (bytes.size() < kLeastHead) return {};
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view digits = text.substr(8, 8);
  std::size_t head_bytes = 0;
  const std::size_t blanks = std::min(digits.find_first_not_of(' '), digits.size());
  std::from_chars(digits.data() + blanks, digits.data() + digits.size(), head_bytes);
  if (head_bytes < kLeastHead || head_bytes > bytes.size()) return {};
  const std::string_view head = text.substr(0, head_bytes);
  if (head.find("shorten") != std::string_view::npos) return {};
  const std::uint64_t there = bytes.size() - head_bytes;
  const std::uint64_t one = nist_number(head, "sample_count") * nist_number(head, "sample_n_bytes");
  const std::uint64_t channels = std::max<std::uint64_t>(nist_number(head, "channel_count"), 1);
  // By the book of one channel; some writers count those of all.
  return there == one ? Status() : compare(one * channels, 4, there);
}

/// Creative Voice: blocks of a kind, a length of three bytes and that many bytes, up to one of kind
/// 0.
Status check_voc(std::span<const std::byte> bytes) {
  constexpr std::size_t kHeadBytes = 26, kBlockHeadBytes = 4;
  if (bytes.size() < kHeadBytes) return {};
  std::size_t at = static_cast<std::size_t>(number_at(bytes.subspan(20, 2), false));
  while (at + kBlockHeadBytes <= bytes.size() && bytes[at] != std::byte{0}) {
    const std::uint64_t size = number_at(bytes.subspan(at + 1, 3), false);
    at += kBlockHeadBytes;
    HEADRACE_TRY(compare(size, 4, bytes.size() - at));
    at += static_cast<std::size_t>(size);
  }
  return {};
}

}  // namespace

Status check_sound_size(std::span<const std::byte> bytes) {
  if (has_text(bytes, 0, ".snd") || has_text(bytes, 0, "dns.")) return check_au(bytes);
  if (has_text(bytes, 0, "NIST_1A")) return check_nist(bytes);
  if (has_text(bytes, 0, "Creative Voice File")) return check_voc(bytes);
  if (has_text(bytes, 0, "FORM") && (has_text(bytes, 8, "8SVX") || has_text(bytes, 8, "16SV")))
    return check_chunks(bytes, kVoiceForm);
  for (const ChunkForm& form : kForms) {
    if (has_text(bytes, 0, form.mark)) return check_chunks(bytes, form);
  }
  return {};
}

}  // namespace headrace::detail
