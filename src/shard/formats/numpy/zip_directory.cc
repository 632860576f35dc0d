// A zip is read from its end: end record, then the central directory, then each member's local
// header. No size or offset of it is used before it was compared with the file.
//
// - Anything may stand in the comment, an end record too: the one whose comment ends exactly with
//   the file is taken, the last such.
// - 0xffffffff (0xffff for the count) means that the number is in a zip64 record; there, only the
//   numbers that did not fit stand, in a fixed order.
// - The number of members is bounded by the directory's size before anything is made of it.
#include "shard/formats/numpy/zip_directory.h"

#include <fmt/format.h>

#include "base/endian.h"

namespace headrace::detail {
namespace {

constexpr std::uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50,
                        kMemberMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr std::uint64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kMemberBytes = 46;
constexpr std::uint16_t kZip64Field = 1;
constexpr std::uint32_t kIn64 = 0xffff'ffff;
constexpr std::uint16_t kIn64Count = 0xffff;

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("zip: {}", what));
}

std::uint16_t load_u16(std::span<const std::byte> bytes, std::size_t at) {
  return load_le<std::uint16_t>(bytes.data() + at);
}
std::uint32_t load_u32(std::span<const std::byte> bytes, std::size_t at) {
  return load_le<std::uint32_t>(bytes.data() + at);
}
std::uint64_t load_u64(std::span<const std::byte> bytes, std::size_t at) {
  return load_le<std::uint64_t>(bytes.data() + at);
}

// The end record is the last one whose comment ends with the file.
std::optional<std::size_t> find_end(std::span<const std::byte> tail) {
  if (tail.size() < kEndBytes) return std::nullopt;
  for (std::size_t at = tail.size() - kEndBytes + 1; at-- > 0;) {
    if (load_u32(tail, at) == kEndMark && at + kEndBytes + load_u16(tail, at + 20) == tail.size())
      return at;
  }
  return std::nullopt;
}

// Numbers of zip64 records in the extra field of a member replace those that did not fit.
bool read_zip64(std::span<const std::byte> extra, ZipMember& member,
                const std::uint32_t (&small)[3]) {
  std::uint64_t* const wide[3] = {&member.raw_bytes, &member.stored_bytes, &member.header_offset};
  while (extra.size() >= 4) {
    const std::uint16_t id = load_u16(extra, 0);
    const std::size_t size = load_u16(extra, 2);
    if (size > extra.size() - 4) return false;
    auto field = extra.subspan(4, size);
    extra = extra.subspan(4 + size);
    if (id != kZip64Field) continue;
    for (int i = 0; i < 3; ++i) {
      if (small[i] != kIn64) continue;
      if (field.size() < 8) return false;
      *wide[i] = load_u64(field, 0);
      field = field.subspan(8);
    }
    return true;
  }
  return small[0] != kIn64 && small[1] != kIn64 && small[2] != kIn64;
}

}  // namespace

Result<ZipDirectoryPlace> find_zip_directory(std::span<const std::byte> tail,
                                             std::uint64_t file_bytes) {
  const auto end = find_end(tail);
  if (!end) return corrupt("no end record: not a zip file, or cut off");
  ZipDirectoryPlace place{.offset_bytes = load_u32(tail, *end + 16),
                          .length_bytes = load_u32(tail, *end + 12),
                          .member_count = load_u16(tail, *end + 10)};
  std::uint64_t first_disk = load_u16(tail, *end + 4);
  const bool is_wide = place.offset_bytes == kIn64 || place.length_bytes == kIn64 ||
                       place.member_count == kIn64Count;
  if (is_wide && *end >= kLocatorBytes && load_u32(tail, *end - kLocatorBytes) == kLocatorMark) {
    const std::uint64_t at = load_u64(tail, *end - kLocatorBytes + 8);
    const std::uint64_t tail_begin = file_bytes - tail.size();
    if (at < tail_begin || at - tail_begin > *end - kLocatorBytes ||
        *end - kLocatorBytes - (at - tail_begin) < kEnd64Bytes ||
        load_u32(tail, at - tail_begin) != kEnd64Mark) {
      return corrupt("no zip64 end record where its locator says");
    }
    const auto record = tail.subspan(at - tail_begin);
    place = {.offset_bytes = load_u64(record, 48),
             .length_bytes = load_u64(record, 40),
             .member_count = load_u64(record, 32)};
    first_disk = load_u32(record, 16);
  }
  if (first_disk != 0) return Status(Code::kUnsupported, "zip: of several disks");
  if (place.member_count > kMostZipMembers)
    return Status(Code::kUnsupported, fmt::format("zip: more than {} members", kMostZipMembers));
  if (place.offset_bytes > file_bytes || place.length_bytes > file_bytes - place.offset_bytes ||
      place.member_count > place.length_bytes / kMemberBytes) {
    return corrupt("its directory lies outside the file");
  }
  return place;
}

Result<std::vector<ZipMember>> parse_zip_directory(std::span<const std::byte> directory,
                                                   const ZipDirectoryPlace& place,
                                                   std::uint64_t file_bytes) {
  if (directory.size() < place.length_bytes) return corrupt("its directory is cut off");
  directory = directory.first(place.length_bytes);
  std::vector<ZipMember> members;
  for (std::uint64_t i = 0; i < place.member_count; ++i) {
    if (directory.size() < kMemberBytes || load_u32(directory, 0) != kMemberMark)
      return corrupt(fmt::format("no entry {} in its directory", i));
    const std::size_t name_bytes = load_u16(directory, 28), extra_bytes = load_u16(directory, 30);
    const std::size_t all = kMemberBytes + name_bytes + extra_bytes + load_u16(directory, 32);
    if (all > directory.size()) return corrupt(fmt::format("entry {} is cut off", i));
    const std::uint32_t small[3] = {load_u32(directory, 24), load_u32(directory, 20),
                                    load_u32(directory, 42)};
    ZipMember member;
    member.name.assign(reinterpret_cast<const char*>(directory.data()) + kMemberBytes, name_bytes);
    member.is_encrypted = (load_u16(directory, 8) & 1) != 0;
    member.method = load_u16(directory, 10);
    member.crc32 = load_u32(directory, 16);
    member.raw_bytes = small[0];
    member.stored_bytes = small[1];
    member.header_offset = small[2];
    if (!read_zip64(directory.subspan(kMemberBytes + name_bytes, extra_bytes), member, small))
      return corrupt(fmt::format("member '{}' has a bad zip64 field", member.name));
    if (member.stored_bytes > file_bytes ||
        member.header_offset > file_bytes - member.stored_bytes) {
      return corrupt(fmt::format("member '{}' lies outside the file", member.name));
    }
    members.push_back(std::move(member));
    directory = directory.subspan(all);
  }
  return members;
}

Result<std::uint64_t> zip_local_header_bytes(std::span<const std::byte> header) {
  if (header.size() < kZipLocalHeaderBytes || load_u32(header, 0) != kLocalMark)
    return corrupt("no local header where its directory says");
  return kZipLocalHeaderBytes + load_u16(header, 26) + load_u16(header, 28);
}

}  // namespace headrace::detail
