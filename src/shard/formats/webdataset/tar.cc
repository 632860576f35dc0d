// A member may be preceded by headers that say its name or size instead of its own block: GNU's
// 'L' and pax's 'x' and 'g'. What is not known but harmless is passed over, what would change the
// meaning of the bytes (sparse members) is refused. Names and sizes are those that Python's
// tarfile finds, since webdataset reads with it.
#include "shard/formats/webdataset/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

namespace headrace::detail {
namespace {

// Fields of a header block. Source: POSIX.1-1988 ustar; GNU tar manual, "Basic Tar Format".
struct Field {
  std::size_t offset;
  std::size_t bytes;
};
constexpr Field kName{0, 100};
constexpr Field kSize{124, 12};
constexpr Field kChecksum{148, 8};
constexpr std::size_t kTypeOffset = 156;
constexpr Field kPrefix{345, 155};

constexpr std::uint64_t kMostMemberBytes = std::uint64_t{1}
                                           << 62;  // Keeps sums of offsets from overflowing.

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("tar: {}", what));
}
Status unsupported(std::string_view what) {
  return Status(Code::kUnsupported, fmt::format("tar: {}", what));
}

std::string_view field_text(const std::byte* header, Field field) {
  const char* text = reinterpret_cast<const char*>(header) + field.offset;
  return {text, ::strnlen(text, field.bytes)};
}

// Octal text, or base-256 when the first byte says so. Negative numbers and other text: nothing.
std::optional<std::uint64_t> field_number(const std::byte* header, Field field) {
  const auto* raw = reinterpret_cast<const unsigned char*>(header) + field.offset;
  if (raw[0] == 0x80) {
    std::uint64_t value = 0;
    for (std::size_t i = 1; i < field.bytes; ++i) {
      if (value > (kMostMemberBytes >> 8)) return std::nullopt;
      value = (value << 8) | raw[i];
    }
    return value;
  }
  if (raw[0] > 0x80) return std::nullopt;
  std::string_view text = field_text(header, field);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.empty()) return 0;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_zero_block(const std::byte* block) {
  return std::all_of(block, block + kTarBlockBytes, [](std::byte b) { return b == std::byte{0}; });
}

// The sum of all bytes, those of the checksum field counted as spaces. Some old writers summed
// signed characters; both sums are in use.
bool is_checksum_right(const std::byte* header) {
  const auto stored = field_number(header, kChecksum);
  const auto* bytes = reinterpret_cast<const unsigned char*>(header);
  std::uint32_t sum = 0;
  std::uint32_t high_count = 0;  // Bytes that are negative as signed characters.
  for (std::size_t i = 0; i < kTarBlockBytes; ++i) sum += bytes[i];
  for (std::size_t i = 0; i < kTarBlockBytes; ++i) high_count += bytes[i] >> 7;
  for (std::size_t i = kChecksum.offset; i < kChecksum.offset + kChecksum.bytes; ++i) {
    sum += std::uint32_t{' '} - bytes[i];
    high_count -= bytes[i] >> 7;
  }
  return stored && (*stored == sum || *stored + 256 * std::uint64_t{high_count} == sum);
}

std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kTarBlockBytes - 1) / kTarBlockBytes * kTarBlockBytes;
}

// What extension headers of one kind say about the member that follows.
struct Overrides {
  std::optional<std::string_view> name;
  std::optional<std::uint64_t> size;
};

// The member's own headers go before global ones. Of its own the first to say something wins, as in
// Python's tarfile; of global ones the last (POSIX).
struct Extensions {
  Overrides own;
  Overrides global;
  PaxGlobals globals;
};

// Records "<length> <key>=<value>\n", the length counting all of the record.
Status parse_pax(std::string_view text, bool is_global, Extensions& out) {
  Overrides found;
  while (!text.empty() && text.front() != '\0') {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || length > text.size() || length < digits + 3 ||
        text[digits] != ' ' || text[length - 1] != '\n') {
      return corrupt("broken pax record");
    }
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return corrupt("pax record without '='");
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key.starts_with("GNU.sparse.")) return unsupported("sparse members cannot be read");
    if (is_global && key == "path") out.globals.sets_name = !value.empty();
    if (is_global && key == "size") out.globals.sets_size = !value.empty();
    if (key == "path") found.name = value;
    if (key == "size" && is_global && value.empty()) {
      out.global.size.reset();
    } else if (key == "size") {
      std::uint64_t size = 0;
      const auto [last, size_error] =
          std::from_chars(value.data(), value.data() + value.size(), size);
      if (size_error != std::errc() || last != value.data() + value.size())
        return corrupt("bad pax size");
      found.size = size;
    }
    text.remove_prefix(length);
  }
  if (is_global) {
    if (found.name) out.global.name = found.name;
    if (found.size) out.global.size = found.size;
    if (out.global.name && out.global.name->empty()) out.global.name.reset();
    return Status();
  }
  if (!out.own.name) out.own.name = found.name;
  if (!out.own.size) out.own.size = found.size;
  return Status();
}

// Handles an extension header ('L', 'K', 'x', 'X', 'g') whose data are `text`.
Status apply_extension(char type, std::string_view text, Extensions& out) {
  if (type == 'K') return Status();
  if (type != 'L') return parse_pax(text, type == 'g', out);
  if (!out.own.name) out.own.name = text.substr(0, text.find('\0'));
  return Status();
}

bool is_extension(char type) {
  return type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g';
}

// Types whose size field does not mean data: links, devices, directories, FIFOs. Unknown types do
// carry data.
bool is_without_data(char type) { return type >= '1' && type <= '6'; }

Status fill_member(const std::byte* header, std::uint64_t header_end, const Extensions& extensions,
                   TarNameBuffer& buffer, TarMember& member) {
  const auto& [own, global, globals] = extensions;
  const auto given_name = own.name ? own.name : global.name;
  const auto given_size = own.size ? own.size : global.size;
  member.globals = globals;
  member.has_own_name = own.name.has_value();
  member.has_own_size = own.size.has_value();
  const char type = static_cast<char>(header[kTypeOffset]);
  if (type == 'S') return unsupported("sparse members cannot be read");
  const auto size = given_size ? given_size : field_number(header, kSize);
  if (!size || *size > kMostMemberBytes) return corrupt("bad member size");
  member.name = given_name ? *given_name : ustar_name({header, kTarBlockBytes}, buffer);
  member.is_name_joined = member.name.data() == buffer.data();
  // Version 7 had no type for directories but a slash at the end.
  const bool is_old_directory = type == '\0' && member.name.ends_with('/');
  member.is_regular = (type == '0' || type == '\0' || type == '7') && !is_old_directory;
  member.data_begin = header_end;
  member.data_bytes = is_without_data(type) || is_old_directory ? 0 : *size;
  member.end = header_end + round_up(member.data_bytes);
  return Status();
}

TarResult need(std::uint64_t bytes) {
  return TarResult{.step = TarStep::kNeedMore, .needed_bytes = bytes, .member = {}};
}

}  // namespace

std::string_view ustar_name(std::span<const std::byte> header, TarNameBuffer& buffer) noexcept {
  const std::string_view name = field_text(header.data(), kName);
  const std::string_view prefix = field_text(header.data(), kPrefix);
  if (prefix.empty()) return name;
  std::memcpy(buffer.data(), prefix.data(), prefix.size());
  buffer[prefix.size()] = '/';
  std::memcpy(buffer.data() + prefix.size() + 1, name.data(), name.size());
  return {buffer.data(), prefix.size() + 1 + name.size()};
}

Result<TarResult> parse_tar_member(std::span<const std::byte> bytes, TarNameBuffer& buffer) {
  Extensions extensions;
  std::uint64_t at = 0;
  while (true) {
    if (bytes.size() < at + kTarBlockBytes) return need(at + kTarBlockBytes);
    const std::byte* header = bytes.data() + at;
    if (is_zero_block(header)) {
      if (at > 0) return corrupt("extension header without a member");
      return TarResult{.step = TarStep::kZeroBlock, .needed_bytes = 0, .member = {}};
    }
    if (!is_checksum_right(header)) return corrupt("header checksum does not match");
    const char type = static_cast<char>(header[kTypeOffset]);
    at += kTarBlockBytes;
    if (!is_extension(type)) {
      TarResult result{.step = TarStep::kMember, .needed_bytes = 0, .member = {}};
      HEADRACE_TRY(fill_member(header, at, extensions, buffer, result.member));
      return result;
    }
    const auto size = field_number(header, kSize);
    if (!size) return corrupt("bad size of an extension header");
    if (*size > kMostTarExtensionBytes || at > kMostTarExtensionBytes)
      return unsupported("extension headers above 1 MiB");
    if (bytes.size() < at + round_up(*size)) return need(at + round_up(*size) + kTarBlockBytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + at, *size);
    HEADRACE_TRY(apply_extension(type, text, extensions));
    at += round_up(*size);
  }
}

}  // namespace headrace::detail
