// An index comes from a bucket, so nothing in it is believed. What parse() accepts can then be
// asked without further checks by any thread:
//
// - Counts and offsets are checked against the sections before they are used as a size, an index
//   or a factor; sums are kept below 2^62 each, so that two of them do not overflow.
// - Shards follow each other without gap in samples; frames of a shard fill it, in order; no two
//   shards share frames, which bounds the work of checking them by their section's size.
// - Boundaries are not checked: there may be 10^9, and they may lie on disk. A wrong one gives
//   wrong bytes, never bytes outside the shard: every look-up is clamped to it.
//
// Sums of large sections are checked by verify_sums() only, not at every opening.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/endian.h"
#include "shard/codec/json_reader.h"
#include "shard/dataset/format_driver.h"
#include "shard/index/hri.h"
#include "shard/index/hri_layout.h"

namespace headrace::detail {
namespace {

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("dataset index: {}", what));
}

constexpr std::size_t kMostIndexColumns = 4096;
// Sections above this are not read at every open; 1 MiB takes 0.1 ms.
constexpr std::uint64_t kCheckedAtOpenBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostBytes = std::uint64_t{1}
                                     << 62;  // Of all shards; sums of two cannot overflow.

struct Sections {
  std::span<const std::byte> by_id[hri::kSectionEnd];
};

// `has_bounds`: the boundaries are in `bytes`; else they cannot be checked.
Result<Sections> read_table(std::span<const std::byte> bytes, std::uint64_t most_checked_bytes,
                            bool has_bounds = true) {
  const auto count = load_le<std::uint32_t>(bytes.data() + 12);
  if (count > hri::kMostSections) return corrupt("too many sections");
  const std::size_t table_end = hri::kHeaderBytes + count * hri::kSectionRecordBytes;
  if (bytes.size() < table_end) return corrupt("cut off in the section table");
  if (most_checked_bytes > 0) {
    std::string head(reinterpret_cast<const char*>(bytes.data()), table_end);
    // The sum is over the head with its own field 0.
    std::memset(head.data() + hri::kChecksumOffset, 0, sizeof(std::uint32_t));
    if (crc32c(std::as_bytes(std::span(head))) !=
        load_le<std::uint32_t>(bytes.data() + hri::kChecksumOffset)) {
      return corrupt("header checksum does not match");
    }
  }
  Sections sections;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::byte* record = bytes.data() + hri::kHeaderBytes + i * hri::kSectionRecordBytes;
    const auto id = load_le<std::uint32_t>(record);
    const auto offset = load_le<std::uint64_t>(record + 8);
    const auto length = load_le<std::uint64_t>(record + 16);
    if (offset > bytes.size() || length > bytes.size() - offset)
      return corrupt("section outside the file");
    const auto section = bytes.subspan(offset, length);
    const bool is_there = has_bounds || (id != hri::kBoundGroups && id != hri::kBoundPacked);
    if (is_there && length <= most_checked_bytes && most_checked_bytes > 0 &&
        crc32c(section) != load_le<std::uint32_t>(record + 4)) {
      return corrupt(fmt::format("checksum of section {} does not match", id));
    }
    if (id > 0 && id < hri::kSectionEnd) sections.by_id[id] = section;
  }
  return sections;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status check_head(std::span<const std::byte> bytes) {
  if (bytes.size() < hri::kHeaderBytes || as_text(bytes.first(8)) != hri::kMagic)
    return corrupt("not an index");
  const auto version = load_le<std::uint32_t>(bytes.data() + 8);
  if (version != hri::kVersion && version != hri::kReducedVersion) {
    return Status(Code::kUnsupported,
                  fmt::format("dataset index: version {}, this build reads {} and {}", version,
                              hri::kVersion, hri::kReducedVersion));
  }
  if (load_le<std::uint64_t>(bytes.data() + 16) != bytes.size()) {
    return corrupt(fmt::format("{} bytes, its header says {}", bytes.size(),
                               load_le<std::uint64_t>(bytes.data() + 16)));
  }
  return Status();
}

bool read_string(simdjson::dom::element object, const char* name, std::string& out) {
  std::string_view value;
  if (object[name].get_string().get(value)) return false;
  out = value;
  return true;
}

// Calls `visit(entry) -> Status` for a list that an index may have.
template <class Visit>
Status visit_list(std::string_view json, const char* name, Visit visit) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const auto root, parse_json(parser, json));
  simdjson::dom::element member;
  if (root[name].get(member)) return Status();
  simdjson::dom::array list;
  if (member.get_array().get(list)) return corrupt(fmt::format("\"{}\" that is no list", name));
  for (const simdjson::dom::element entry : list) HEADRACE_TRY(visit(entry));
  return Status();
}

// Names of classes, which most columns do not have.
bool read_classes(simdjson::dom::element column, std::vector<std::string>& out) {
  simdjson::dom::element list;
  return column["classes"].get(list) || read_strings(list, out);
}

bool parse_broken_code(std::string_view name, Code& code) {
  for (const Code known : {Code::kCorrupt, Code::kUnsupported, Code::kNotFound}) {
    if (name != code_name(known)) continue;
    code = known;
    return true;
  }
  return false;
}

}  // namespace

Status IndexView::verify_sums(std::span<const std::byte> bytes) {
  HEADRACE_TRY(check_head(bytes));
  auto sections = read_table(bytes, ~std::uint64_t{0});
  return sections ? Status() : std::move(sections).error();
}

Result<IndexView> IndexView::parse(std::span<const std::byte> bytes, bool check_sums,
                                   const IndexPages* pages) {
  HEADRACE_TRY(check_head(bytes));
  HEADRACE_TRY_ASSIGN(const Sections sections,
                      read_table(bytes, check_sums ? kCheckedAtOpenBytes : 0, pages == nullptr));
  IndexView view;
  const auto format = load_le<std::uint32_t>(bytes.data() + 44);
  view.format_ = static_cast<Format>(format);
  // The field is wider than the ids.
  if (format != static_cast<std::uint32_t>(view.format_) || driver_of(view.format_) == nullptr)
    return corrupt("unknown format");
  view.sample_count_ = load_le<std::uint64_t>(bytes.data() + 24);
  view.stored_bytes_ = load_le<std::uint64_t>(bytes.data() + 32);
  view.fingerprint_ = fmt::format("{:016x}{:016x}", load_le<std::uint64_t>(bytes.data() + 72),
                                  load_le<std::uint64_t>(bytes.data() + 64));
  view.text_ = sections.by_id[hri::kText];
  view.objects_ = sections.by_id[hri::kObjects];
  view.keys_ = sections.by_id[hri::kKeys];
  view.frames_ = sections.by_id[hri::kFrames];
  view.bounds_ =
      BoundsView(sections.by_id[hri::kBoundGroups], sections.by_id[hri::kBoundPacked], pages);
  if (view.objects_.size() % kObjectBytes != 0 || view.keys_.size() % kKeyBytes != 0 ||
      view.frames_.size() % kFrameBytes != 0 ||
      view.object_count() != load_le<std::uint64_t>(bytes.data() + 48)) {
    return corrupt("section sizes do not fit its counts");
  }
  const auto records = sections.by_id[hri::kShards];
  if (records.size() != std::uint64_t{kShardBytes} * load_le<std::uint32_t>(bytes.data() + 40)) {
    return corrupt("section sizes do not fit its counts");
  }
  HEADRACE_TRY(view.parse_schema(as_text(sections.by_id[hri::kSchema])));
  HEADRACE_TRY(view.parse_broken(as_text(sections.by_id[hri::kSchema])));
  HEADRACE_TRY(view.parse_cut_ends(as_text(sections.by_id[hri::kSchema])));
  const bool is_reduced = load_le<std::uint32_t>(bytes.data() + 8) == hri::kReducedVersion;
  if (is_reduced == view.broken_.empty()) return corrupt("its version does not fit its schema");
  HEADRACE_TRY(view.parse_shards(records));
  HEADRACE_TRY(view.mark_broken());
  return view;
}

Status IndexView::parse_schema(std::string_view json) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const auto root, parse_json(parser, json));
  simdjson::dom::element source;
  if (root["source"].get(source) || !read_string(source, "key", source_.key) ||
      !read_string(source, "etag", source_.etag) ||
      source["size"].get_uint64().get(source_.size_bytes)) {
    return corrupt("schema without its source");
  }
  if (!read_string(root, "layout", layout_)) return corrupt("schema without a layout");
  simdjson::dom::array columns;
  if (root["columns"].get_array().get(columns)) return corrupt("schema without columns");
  std::uint64_t fixed_bytes = 0;
  for (const simdjson::dom::element entry : columns) {
    Column column;
    simdjson::dom::array shape;
    if (!read_string(entry, "name", column.name) ||
        !read_string(entry, "encoding", column.encoding) ||
        !read_string(entry, "dtype", column.dtype) ||
        entry["size"].get_uint64().get(column.fixed_size_bytes) ||
        entry["shape"].get_array().get(shape)) {
      return corrupt("schema with an incomplete column");
    }
    for (const simdjson::dom::element extent : shape) {
      std::uint64_t value = 0;
      if (extent.get_uint64().get(value)) return corrupt("schema with a bad shape");
      column.shape.push_back(value);
    }
    if (!read_classes(entry, column.classes)) return corrupt("schema with bad classes");
    if (column.fixed_size_bytes > kMostFixedBytes - fixed_bytes)
      return corrupt("columns too large");
    fixed_bytes += column.fixed_size_bytes;
    columns_.push_back(std::move(column));
  }
  if (columns_.size() < driver_of(format_)->least_columns || columns_.size() > kMostIndexColumns)
    return corrupt("impossible number of columns");
  return Status();
}

Status IndexView::parse_broken(std::string_view json) {
  return visit_list(json, "broken", [this](simdjson::dom::element entry) {
    BrokenShard shard;
    std::string code;
    if (!read_string(entry, "key", shard.key) || !read_string(entry, "etag", shard.etag) ||
        !read_string(entry, "message", shard.message) ||
        entry["size"].get_uint64().get(shard.size_bytes) ||
        entry["first"].get_uint64().get(shard.first_sample) ||
        entry["samples"].get_uint64().get(shard.sample_count) ||
        !read_string(entry, "code", code) || !parse_broken_code(code, shard.code)) {
      return corrupt("an incomplete broken shard");
    }
    broken_.push_back(std::move(shard));
    return Status();
  });
}

Status IndexView::parse_cut_ends(std::string_view json) {
  return visit_list(json, "cut", [this](simdjson::dom::element entry) {
    CutEnd& end = cut_ends_.emplace_back();
    if (!read_string(entry, "key", end.key) || entry["bytes"].get_uint64().get(end.cut_bytes))
      return corrupt("an incomplete cut end");
    return Status();
  });
}

Status IndexView::mark_broken() {
  for (const BrokenShard& broken : broken_) {
    if (broken.sample_count == 0) continue;
    // Shards without samples begin where the next one does.
    auto shard = std::lower_bound(
        shards_.begin(), shards_.end(), broken.first_sample,
        [](const ShardRecord& s, std::uint64_t first) { return s.first_sample < first; });
    while (shard != shards_.end() && shard->sample_count == 0) ++shard;
    if (shard == shards_.end() || shard->first_sample != broken.first_sample ||
        shard->sample_count != broken.sample_count || shard->compression != Compression::kNone ||
        shard->raw_bytes != 0) {
      return corrupt("a broken shard that is none of its shards");
    }
    shard->is_broken = true;
  }
  return Status();
}

Status IndexView::parse_shards(std::span<const std::byte> records) {
  std::uint64_t position = 0;
  std::uint64_t stored = 0;
  std::uint64_t frame_end = 0;
  const FormatDriver& driver = *driver_of(format_);
  shards_.reserve(records.size() / kShardBytes);
  for (std::size_t at = 0; at < records.size(); at += kShardBytes) {
    const auto field = [&](std::size_t i) {
      return load_le<std::uint64_t>(records.data() + at + 8 * i);
    };
    ShardRecord shard;
    shard.first_sample = field(0);
    shard.sample_count = field(1);
    shard.stored_bytes = field(2);
    shard.raw_bytes = field(3);
    shard.first_object = field(4);
    shard.bounds = BoundsRef{field(5), field(6), field(7)};
    shard.hashes = text(field(8), field(9));
    const auto compression = load_le<std::uint16_t>(records.data() + at + 80);
    const auto flags = load_le<std::uint16_t>(records.data() + at + 82);
    shard.frame_count = load_le<std::uint32_t>(records.data() + at + 84);
    shard.first_frame = field(11);
    shard.has_gaps = (flags & hri::kFlagGaps) != 0;
    shard.has_bounds = (flags & hri::kFlagNoBounds) == 0;
    if (compression > static_cast<std::uint16_t>(Compression::kUnpacked))
      return corrupt("unknown compression");
    shard.compression = static_cast<Compression>(compression);
    if (shard.first_sample != position || shard.sample_count > kMostShardSamples ||
        (shard.has_bounds && !bounds_.holds(shard.bounds, shard.bound_count()))) {
      return corrupt("shard records do not fit together");
    }
    if (shard.stored_bytes > kMostBytes - stored || shard.raw_bytes > kMostBytes) {
      return corrupt("sizes overflow");
    }
    HEADRACE_TRY(check_storage(shard, driver.sample_is_object));
    // Frames are looked at once each: no two shards share them.
    if (shard.frame_count > 0) {
      if (shard.first_frame < frame_end) return corrupt("frames of two shards overlap");
      frame_end = shard.first_frame + shard.frame_count;
      HEADRACE_TRY(check_frames(shard));
    }
    position += shard.sample_count;
    stored += shard.stored_bytes;
    shards_.push_back(shard);
  }
  if (position != sample_count_ || stored != stored_bytes_)
    return corrupt("totals do not fit its shards");
  return Status();
}

Status IndexView::check_storage(const ShardRecord& shard, bool sample_is_object) const {
  const std::uint64_t objects_needed = sample_is_object ? shard.sample_count : 1;
  if (shard.first_object > object_count() || objects_needed > object_count() - shard.first_object) {
    return corrupt("shard without its object");
  }
  if (shard.compression == Compression::kNone) {
    if (shard.raw_bytes != shard.stored_bytes) return corrupt("plain shard with two sizes");
    if (!shard.has_bounds) return corrupt("plain shard without boundaries");
    return shard.frame_count == 0 ? Status() : corrupt("plain shard with frames");
  }
  // Its one shard is many objects.
  if (sample_is_object) return corrupt("compressed shard of a format without compression");
  return Status();
}

Status IndexView::check_frames(const ShardRecord& shard) const {
  const std::uint64_t count = frames_.size() / kFrameBytes;
  if (shard.first_frame > count || shard.frame_count > count - shard.first_frame)
    return corrupt("frames outside their section");
  std::uint64_t stored_end = 0, raw_end = 0, sample = 0;
  for (std::uint32_t i = 0; i < shard.frame_count; ++i) {
    const Frame frame = frame_of(shard, i);
    if (frame.stored_begin < stored_end || frame.stored_begin > shard.stored_bytes ||
        frame.stored_bytes > shard.stored_bytes - frame.stored_begin ||
        frame.raw_begin != raw_end || frame.raw_bytes > shard.raw_bytes - raw_end ||
        (i == 0 ? frame.first_sample != 0 : frame.first_sample < sample) ||
        frame.first_sample > shard.sample_count) {
      return corrupt("frames do not fit together");
    }
    stored_end = frame.stored_begin + frame.stored_bytes;
    raw_end += frame.raw_bytes;
    sample = frame.first_sample;
  }
  return raw_end == shard.raw_bytes ? Status() : corrupt("frames do not fill their shard");
}

Frame IndexView::frame_of(const ShardRecord& shard, std::uint32_t index) const noexcept {
  if (index >= shard.frame_count) return {};
  const std::byte* record = frames_.data() + (shard.first_frame + index) * kFrameBytes;
  const auto field = [record](std::size_t i) { return load_le<std::uint64_t>(record + 8 * i); };
  return {field(0), field(1), field(2), field(3), field(4)};
}

std::string_view IndexView::text(std::uint64_t offset, std::uint64_t length_bytes) const noexcept {
  if (offset > text_.size() || length_bytes > text_.size() - offset) return {};
  return {reinterpret_cast<const char*>(text_.data()) + offset, length_bytes};
}

IndexObject IndexView::object(std::uint64_t index) const noexcept {
  if (index >= object_count()) return {};
  const std::byte* record = objects_.data() + index * kObjectBytes;
  const auto offset = load_le<std::uint64_t>(record);
  const auto key_bytes = load_le<std::uint32_t>(record + 8);
  const auto etag_bytes = load_le<std::uint32_t>(record + 12);
  const std::string_view both = text(offset, std::uint64_t{key_bytes} + etag_bytes);
  if (both.size() != std::uint64_t{key_bytes} + etag_bytes) return {};
  return {both.substr(0, key_bytes), both.substr(key_bytes), load_le<std::uint64_t>(record + 16)};
}

std::uint64_t IndexView::begin_of(const ShardRecord& shard, std::uint64_t index) const noexcept {
  return std::min(bounds_.at(shard.bounds, shard.has_gaps ? 2 * index : index), shard.raw_bytes);
}

std::uint64_t IndexView::end_of(const ShardRecord& shard, std::uint64_t index) const noexcept {
  return range_of(shard, index).end;
}

IndexView::Range IndexView::range_of(const ShardRecord& shard, std::uint64_t index) const noexcept {
  const std::uint64_t at = shard.has_gaps ? 2 * index : index;
  const std::uint64_t begin = std::min(bounds_.at(shard.bounds, at), shard.raw_bytes);
  const std::uint64_t end = std::min(bounds_.at(shard.bounds, at + 1), shard.raw_bytes);
  return {begin, std::max(begin, end)};
}

std::string_view IndexView::key_of(std::uint64_t position) const noexcept {
  std::uint64_t low = 0, high = keys_.size() / kKeyBytes;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const std::byte* record = keys_.data() + middle * kKeyBytes;
    const auto found = load_le<std::uint64_t>(record);
    if (found == position)
      return text(load_le<std::uint64_t>(record + 8), load_le<std::uint64_t>(record + 16));
    if (found < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return {};
}

}  // namespace headrace::detail
