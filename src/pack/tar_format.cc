#include "pack/tar_format.h"

#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "shard/formats/webdataset/member_name.h"

namespace headrace::pack_detail {
namespace {

constexpr std::size_t kNameBytes = 100;
constexpr std::size_t kPrefixBytes = 155;
constexpr std::uint64_t kLargestOctalSize = 077777777777;

/// Where to cut `name` into ustar's prefix and name; npos when it does not fit. 0: no prefix
/// needed.
std::size_t ustar_cut(std::string_view name) noexcept {
  if (name.size() <= kNameBytes) return 0;
  for (std::size_t slash = name.find('/'); slash != std::string_view::npos;
       slash = name.find('/', slash + 1)) {
    const std::size_t rest = name.size() - slash - 1;
    if (slash > kPrefixBytes) break;
    if (slash > 0 && rest > 0 && rest <= kNameBytes) return slash;
  }
  return std::string_view::npos;
}

bool needs_pax(std::string_view name, std::uint64_t size) noexcept {
  return ustar_cut(name) == std::string_view::npos || size > kLargestOctalSize;
}

/// Zero-padded octal digits; the byte after them stays NUL.
void put_octal(char* field, std::size_t digits, std::uint64_t value) noexcept {
  for (std::size_t i = digits; i-- > 0; value >>= 3)
    field[i] = static_cast<char>('0' + (value & 7));
}

unsigned sum_of(std::string_view bytes) noexcept {
  unsigned sum = 0;
  for (const char c : bytes) sum += static_cast<unsigned char>(c);
  return sum;
}

/// A header without name, size, type and sum, which counts as spaces.
TarBlock empty_header() noexcept {
  TarBlock block{};
  put_octal(&block[100], 7, 0444);
  put_octal(&block[108], 7, 0);
  put_octal(&block[116], 7, 0);
  put_octal(&block[136], 11, 0);
  std::memcpy(&block[257], "ustar\00000", 8);
  std::fill_n(block.begin() + 148, 8, ' ');
  return block;
}

void fill_header(std::string_view name, std::uint64_t size, char type, TarBlock& block) {
  // Most of the sum is the same for all: adding up 512 bytes each time is felt on small files.
  static const TarBlock kEmpty = empty_header();
  static const unsigned kEmptySum = sum_of({kEmpty.data(), kEmpty.size()});
  block = kEmpty;
  std::size_t cut = ustar_cut(name);
  if (cut == std::string_view::npos) {
    name = name.substr(0, kNameBytes);  // The pax record before it has the whole name.
    cut = 0;
  }
  const std::string_view last = cut == 0 ? name : name.substr(cut + 1);
  std::copy(last.begin(), last.end(), block.begin());
  std::copy_n(name.begin(), cut, block.begin() + 345);
  put_octal(&block[124], 11, size > kLargestOctalSize ? 0 : size);
  block[156] = type;
  const unsigned sum = kEmptySum + sum_of(last) + sum_of(name.substr(0, cut)) +
                       sum_of({&block[124], 11}) + static_cast<unsigned char>(type);
  put_octal(&block[148], 6, sum);
  block[154] = '\0';
}

std::string header_block(std::string_view name, std::uint64_t size, char type) {
  TarBlock block;
  fill_header(name, size, type, block);
  return {block.data(), block.size()};
}

/// "LENGTH KEY=VALUE\n", where LENGTH counts itself.
std::string pax_record(std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length)
    length = std::to_string(length).size() + rest;
  return std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
}

std::string pax_body(std::string_view name, std::uint64_t size) {
  std::string body;
  if (ustar_cut(name) == std::string_view::npos) body += pax_record("path", name);
  if (size > kLargestOctalSize) body += pax_record("size", std::to_string(size));
  return body;
}

/// True for absolute names and those with "..": extracting them writes anywhere. "./a" is common in
/// tars that were made by hand, and harmless.
bool leads_elsewhere(std::string_view name) noexcept {
  while (true) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "..") return true;
    if (slash == std::string_view::npos) return false;
    name.remove_prefix(slash + 1);
  }
}

}  // namespace

std::string tar_header(std::string_view name, std::uint64_t size) {
  if (!needs_pax(name, size)) return header_block(name, size, '0');
  std::string body = pax_body(name, size);
  std::string out = header_block("././@PaxHeader", body.size(), 'x');
  body.resize(body.size() + tar_padding(body.size()), '\0');
  return out + body + header_block(name, size, '0');
}

bool fill_tar_header(std::string_view name, std::uint64_t size, TarBlock& block) {
  if (needs_pax(name, size)) return false;
  fill_header(name, size, '0', block);
  return true;
}

std::uint64_t tar_header_bytes(std::string_view name, std::uint64_t size) {
  if (!needs_pax(name, size)) return kTarBlockBytes;
  const std::uint64_t body = pax_body(name, size).size();
  return 2 * kTarBlockBytes + body + tar_padding(body);
}

std::string_view webdataset_group(std::string_view name) {
  if (leads_elsewhere(name)) return {};
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base || dot + 1 == name.size()) return {};
  // Readers skip names with a leading component like "__meta__".
  const std::string_view first = name.substr(0, name.find('/'));
  if (first.size() >= 4 && first.substr(0, 2) == "__" && first.substr(first.size() - 2) == "__")
    return {};
  if (detail::is_taken_suffix(to_lower(name.substr(dot + 1)))) return {};
  // Control characters do not survive all readers.
  const bool has_control = std::any_of(name.begin(), name.end(),
                                       [](char c) { return static_cast<unsigned char>(c) < 32; });
  return has_control ? std::string_view() : name.substr(0, dot);
}

bool TarSamples::add(std::string_view name) {
  const std::string_view group = webdataset_group(name);
  if (group.empty()) return false;
  if (group != group_) {
    if (!is_sample() || !groups_.insert(group).second) return false;
    group_ = group;
    suffixes_.clear();
  }
  suffixes_.push_back(to_lower(name.substr(group.size() + 1)));
  return true;
}

bool TarSamples::is_sample() const {
  if (suffixes_.size() < 2) return true;
  bool has_plain = false;
  for (const std::string& suffix : suffixes_) {
    const std::size_t dot = suffix.find('.');
    has_plain = has_plain || dot == std::string::npos;
    const bool is_number = suffix.find_first_not_of("0123456789") == dot;
    if (is_number || std::count(suffixes_.begin(), suffixes_.end(), suffix) > 1) return false;
  }
  return has_plain;
}

}  // namespace headrace::pack_detail
