// Text of the attribute: "field value C|F", then sizes of parts as runs ("8388608x125,5x1,"), then
// the parts' values. ext4 has 4 KiB for all attributes of a file, which 10,000 values would exceed
// by far; so values are dropped first, then sizes, and the whole sum stays.
//
// A whole sum comes from those of the parts: CRCs of concatenated bytes can be combined, so
// nothing is read again. SHA sums cannot; for them S3 has only COMPOSITE, the sum of the parts'
// raw sums.
#include "sim/object_sums.h"

#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/crc32c.h"
#include "base/crc64nvme.h"
#include "base/strings.h"

namespace headrace::sim {
namespace {

constexpr char kSumsAttribute[] = "user.headrace.sums";
constexpr std::size_t kMaxParts = 10'000;

std::string_view take_until(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view piece = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return piece;
}

std::string sizes_text(const std::vector<std::uint64_t>& sizes) {
  std::string out;
  for (std::size_t i = 0; i < sizes.size();) {
    std::size_t end = i;
    while (end < sizes.size() && sizes[end] == sizes[i]) ++end;
    out += std::to_string(sizes[i]) + "x" + std::to_string(end - i) + ",";
    i = end;
  }
  return out;
}

template <typename T>
T from_bytes(std::string_view raw) {
  T value = 0;
  for (char c : raw) value = static_cast<T>((value << 8) | static_cast<unsigned char>(c));
  return value;
}

template <typename T>
std::string to_bytes(T value) {
  std::string raw(sizeof(T), '\0');
  for (std::size_t i = sizeof(T); i-- > 0; value = static_cast<T>(value >> 8)) {
    raw[i] = static_cast<char>(value & 0xff);
  }
  return raw;
}

template <typename T, typename Combine>
std::string combined(const std::vector<std::string>& raw, const std::vector<std::uint64_t>& sizes,
                     Combine combine) {
  T sum = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    sum = i == 0 ? from_bytes<T>(raw[i]) : combine(sum, from_bytes<T>(raw[i]), sizes[i]);
  }
  return to_base64(to_bytes(sum));
}

}  // namespace

std::optional<std::size_t> ObjectSums::part_at(std::uint64_t offset,
                                               std::uint64_t length) const noexcept {
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < part_sizes.size() && begin <= offset; ++i) {
    if (begin == offset && part_sizes[i] == length) return i;
    begin += part_sizes[i];
  }
  return std::nullopt;
}

std::string to_text(const ObjectSums& sums, std::size_t limit_bytes) {
  std::string out = sums.field + " " + sums.value + (sums.is_composite ? " C\n" : " F\n");
  const std::string sizes = sizes_text(sums.part_sizes);
  if (out.size() + sizes.size() + 1 > limit_bytes) return out;
  out += sizes + "\n";
  std::string values;
  for (const std::string& value : sums.part_values) values += value + ",";
  if (out.size() + values.size() <= limit_bytes) out += values;
  return out;
}

ObjectSums sums_from_text(std::string_view text) {
  ObjectSums sums;
  std::string_view first = take_until(text, '\n');
  sums.field = take_until(first, ' ');
  sums.value = take_until(first, ' ');
  sums.is_composite = first == "C";
  std::string_view sizes = take_until(text, '\n');
  while (!sizes.empty()) {
    std::string_view run = take_until(sizes, ',');
    const auto size = parse_decimal<std::uint64_t>(take_until(run, 'x'));
    const auto count = parse_decimal<std::uint64_t>(run);
    // Others may write this attribute: a run of 10^18 parts must not become memory.
    if (!size || !count || *count > kMaxParts || sums.part_sizes.size() + *count > kMaxParts) {
      return {};
    }
    sums.part_sizes.insert(sums.part_sizes.end(), static_cast<std::size_t>(*count), *size);
  }
  while (!text.empty()) sums.part_values.emplace_back(take_until(text, ','));
  if (sums.part_values.size() != sums.part_sizes.size()) sums.part_values.clear();
  return sums;
}

std::string read_sums(int fd) {
  std::array<char, 4096> text;
  const ssize_t count = ::fgetxattr(fd, kSumsAttribute, text.data(), text.size());
  return count > 0 ? std::string(text.data(), static_cast<std::size_t>(count)) : std::string();
}

void write_sums(int fd, const ObjectSums& sums, std::size_t taken_bytes) {
  if (sums.empty()) return;
  const std::string text = to_text(sums, kMaxSumsBytes - std::min(taken_bytes, kMaxSumsBytes));
  (void)!::fsetxattr(fd, kSumsAttribute, text.data(), text.size(), 0);
}

std::optional<std::string> sum_of_file(ChecksumKind kind, int fd) {
  auto checksum = Checksum::create(kind);
  if (!checksum) return std::nullopt;
  std::vector<char> buffer(1 << 20);
  for (off_t offset = 0;;) {
    const ssize_t count = ::pread(fd, buffer.data(), buffer.size(), offset);
    if (count < 0) return std::nullopt;
    if (count == 0) return to_base64((*checksum)->finish());
    (*checksum)->update({buffer.data(), static_cast<std::size_t>(count)});
    offset += count;
  }
}

std::optional<std::string> combine_sums(ChecksumKind kind, bool is_composite,
                                        const std::vector<std::string>& values,
                                        const std::vector<std::uint64_t>& sizes) {
  std::vector<std::string> raw;
  for (const std::string& value : values) {
    auto bytes = from_base64(value);
    if (!bytes) return std::nullopt;
    raw.push_back(*std::move(bytes));
  }
  if (is_composite) {
    auto checksum = Checksum::create(kind);
    if (!checksum) return std::nullopt;
    for (const std::string& bytes : raw) (*checksum)->update(bytes);
    return to_base64((*checksum)->finish()) + "-" + std::to_string(values.size());
  }
  if (kind == ChecksumKind::kCrc32c) return combined<std::uint32_t>(raw, sizes, crc32c_combine);
  if (kind == ChecksumKind::kCrc64Nvme) {
    return combined<std::uint64_t>(raw, sizes, crc64nvme_combine);
  }
  return std::nullopt;
}

}  // namespace headrace::sim
