#include "shard/scan/scan_files.h"

// u8 compression, u8 flags (has_gaps, has cut_bytes), then varints: raw bytes, cut bytes where the
// flag says so, number of boundaries, their differences, bytes of the facts; then the facts.
namespace headrace::detail {
namespace {

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

bool take_varint(std::string_view& in, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

constexpr unsigned kHasGaps = 1;
constexpr unsigned kHasCut = 2;

}  // namespace

std::string scanned_to_bytes(const FileSamples& samples, const FileForm& form) {
  std::string out;
  out.push_back(static_cast<char>(form.compression));
  const bool has_cut = samples.cut_bytes > 0;
  out.push_back(static_cast<char>((samples.has_gaps ? kHasGaps : 0U) | (has_cut ? kHasCut : 0U)));
  append_varint(out, form.raw_bytes);
  if (has_cut) append_varint(out, samples.cut_bytes);
  append_varint(out, samples.bounds.size());
  std::uint64_t before = 0;
  for (const std::uint64_t bound : samples.bounds) {
    append_varint(out, bound - before);
    before = bound;
  }
  append_varint(out, samples.facts.size());
  return out + samples.facts;
}

Result<ScannedFile> parse_scanned(std::string_view bytes) {
  const auto corrupt = [] { return Status(Code::kCorrupt, "not what was found in a file"); };
  ScannedFile out;
  std::uint64_t count = 0;
  std::uint64_t length = 0;
  if (bytes.size() < 2) return corrupt();
  out.form.compression = static_cast<Compression>(bytes[0]);
  const auto flags = static_cast<unsigned char>(bytes[1]);
  out.samples.has_gaps = (flags & kHasGaps) != 0;
  bytes.remove_prefix(2);
  if (!take_varint(bytes, out.form.raw_bytes) ||
      ((flags & kHasCut) != 0 && !take_varint(bytes, out.samples.cut_bytes)) ||
      !take_varint(bytes, count) || count > bytes.size()) {
    return corrupt();
  }
  out.samples.bounds.reserve(count);
  std::uint64_t bound = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t step = 0;
    if (!take_varint(bytes, step)) return corrupt();
    out.samples.bounds.push_back(bound += step);
  }
  if (!take_varint(bytes, length) || length != bytes.size()) return corrupt();
  out.samples.facts = bytes;
  return out;
}

}  // namespace headrace::detail
