// Sections grow while builders add to them, and finish() puts them into one file
// (docs/formats.md): head, table of sections, sections at multiples of 8. The head's sum is last,
// since it covers everything before the sections.
//
// The fingerprint names the content: format, columns, layout, each object's key, version and size,
// and samples a shard. Boundaries are not in it, as they follow from the objects; nor is
// block_bytes, as a block table has a digest of its own. Lengths go before texts, so that "ab" +
// "c" and "a" + "bc" differ. Changing anything here would make every stored state a state of
// another dataset; hence the second form for layouts, beside the first.
#include <fmt/format.h>
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/endian.h"
#include "shard/index/hri.h"
#include "shard/index/hri_layout.h"

namespace headrace::detail {
namespace {

template <class T>
void append_le(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

template <class T>
void put_le(std::string& out, std::size_t offset, T value) {
  std::memcpy(out.data() + offset, &value, sizeof(T));
}

nlohmann::json columns_json(const std::vector<Column>& columns) {
  nlohmann::json list = nlohmann::json::array();
  for (const Column& column : columns) {
    nlohmann::json& entry = list.emplace_back(nlohmann::json{{"name", column.name},
                                                             {"encoding", column.encoding},
                                                             {"dtype", column.dtype},
                                                             {"shape", column.shape},
                                                             {"size", column.fixed_size_bytes}});
    if (!column.classes.empty()) entry["classes"] = column.classes;
  }
  return list;
}

// Names that are not UTF-8 (tar members may be anything) become replacement characters instead of
// an exception.
std::string dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json broken_json(const std::vector<BrokenShard>& broken) {
  nlohmann::json list = nlohmann::json::array();
  for (const BrokenShard& shard : broken) {
    list.push_back({{"key", shard.key},
                    {"etag", shard.etag},
                    {"size", shard.size_bytes},
                    {"code", code_name(shard.code)},
                    {"message", shard.message},
                    {"first", shard.first_sample},
                    {"samples", shard.sample_count}});
  }
  return list;
}

}  // namespace

ShardRecord broken_record(std::uint64_t sample_count, std::uint64_t first_object,
                          std::uint64_t value_bytes) noexcept {
  ShardRecord record;
  record.sample_count = sample_count;
  record.first_object = first_object;
  record.bounds = {.base = 0, .stride = value_bytes, .first_group = kNoGroups};
  return record;
}

std::string columns_text(const std::vector<Column>& columns) { return dump(columns_json(columns)); }

void IndexWriter::add_object(std::string_view key, std::string_view etag,
                             std::uint64_t size_bytes) {
  append_le<std::uint64_t>(objects_, text_.size());
  append_le<std::uint32_t>(objects_, static_cast<std::uint32_t>(key.size()));
  append_le<std::uint32_t>(objects_, static_cast<std::uint32_t>(etag.size()));
  append_le<std::uint64_t>(objects_, size_bytes);
  text_.append(key).append(etag);
  ++object_count_;
}

void IndexWriter::add_shard(ShardRecord shard) {
  append_le<std::uint64_t>(shards_, sample_count_);
  append_le<std::uint64_t>(shards_, shard.sample_count);
  append_le<std::uint64_t>(shards_, shard.stored_bytes);
  append_le<std::uint64_t>(shards_, shard.raw_bytes);
  append_le<std::uint64_t>(shards_, shard.first_object);
  append_le<std::uint64_t>(shards_, shard.bounds.base);
  append_le<std::uint64_t>(shards_, shard.bounds.stride);
  append_le<std::uint64_t>(shards_, shard.bounds.first_group);
  append_le<std::uint64_t>(shards_, text_.size());
  append_le<std::uint64_t>(shards_, shard.hashes.size());
  const unsigned flags =
      (shard.has_gaps ? hri::kFlagGaps : 0U) | (shard.has_bounds ? 0U : hri::kFlagNoBounds);
  append_le<std::uint16_t>(shards_, static_cast<std::uint16_t>(shard.compression));
  append_le<std::uint16_t>(shards_, static_cast<std::uint16_t>(flags));
  append_le<std::uint32_t>(shards_, shard.frame_count);
  append_le<std::uint64_t>(shards_, shard.frame_count == 0 ? 0 : shard.first_frame);
  text_.append(shard.hashes);
  sample_count_ += shard.sample_count;
  stored_bytes_ += shard.stored_bytes;
  ++shard_count_;
}

std::uint64_t IndexWriter::add_frames(std::span<const Frame> frames) {
  const std::uint64_t first = frames_.size() / IndexView::kFrameBytes;
  for (const Frame& frame : frames) {
    append_le<std::uint64_t>(frames_, frame.stored_begin);
    append_le<std::uint64_t>(frames_, frame.stored_bytes);
    append_le<std::uint64_t>(frames_, frame.raw_begin);
    append_le<std::uint64_t>(frames_, frame.raw_bytes);
    append_le<std::uint64_t>(frames_, frame.first_sample);
  }
  return first;
}

void IndexWriter::add_key(std::uint64_t position, std::string_view key) {
  append_le<std::uint64_t>(keys_, position);
  append_le<std::uint64_t>(keys_, text_.size());
  append_le<std::uint64_t>(keys_, key.size());
  text_.append(key);
}

std::string IndexWriter::finish(const Summary& summary) {
  const nlohmann::json columns = columns_json(summary.columns);
  nlohmann::json members{{"columns", columns},
                         {"layout", summary.layout},
                         {"source",
                          {{"key", summary.source.key},
                           {"etag", summary.source.etag},
                           {"size", summary.source.size_bytes}}}};
  if (!summary.broken.empty()) members["broken"] = broken_json(summary.broken);
  for (const CutEnd& end : summary.cut_ends)
    members["cut"].push_back({{"key", end.key}, {"bytes", end.cut_bytes}});
  const std::string schema = dump(members);
  XXH3_state_t* hash = XXH3_createState();
  XXH3_128bits_reset(hash);
  const auto add = [hash](std::string_view bytes) {
    const std::uint64_t length = bytes.size();
    XXH3_128bits_update(hash, &length, sizeof(length));
    XXH3_128bits_update(hash, bytes.data(), bytes.size());
  };
  add(summary.layout.empty() ? "headrace fingerprint 1" : "headrace fingerprint 2");
  add(format_name(summary.format));
  add(dump(columns));
  if (!summary.layout.empty()) add(summary.layout);
  for (std::size_t at = 0; at < objects_.size(); at += IndexView::kObjectBytes) {
    std::uint64_t offset, size;
    std::uint32_t key_bytes, etag_bytes;
    std::memcpy(&offset, objects_.data() + at, 8);
    std::memcpy(&key_bytes, objects_.data() + at + 8, 4);
    std::memcpy(&etag_bytes, objects_.data() + at + 12, 4);
    std::memcpy(&size, objects_.data() + at + 16, 8);
    add(std::string_view(text_).substr(offset, key_bytes));
    add(std::string_view(text_).substr(offset + key_bytes, etag_bytes));
    XXH3_128bits_update(hash, &size, sizeof(size));
  }
  for (std::size_t at = 0; at < shards_.size(); at += IndexView::kShardBytes) {
    XXH3_128bits_update(hash, shards_.data() + at + 8, 8);  // sample_count
  }
  for (const BrokenShard& shard : summary.broken) {
    add(shard.key);
    add(shard.etag);
    add(fmt::format("broken {} {}", shard.size_bytes, shard.sample_count));
  }
  const XXH128_hash_t fingerprint = XXH3_128bits_digest(hash);
  XXH3_freeState(hash);

  const std::string packed = bounds_.take_packed();
  const std::string_view sections[] = {schema,           text_,  objects_, shards_,
                                       bounds_.groups(), packed, keys_,    frames_};
  constexpr std::uint32_t kSections = hri::kSectionEnd - 1;
  std::string out(hri::kHeaderBytes + kSections * hri::kSectionRecordBytes, '\0');
  for (std::uint32_t i = 0; i < kSections; ++i) {
    out.resize((out.size() + 7) / 8 * 8);
    const std::size_t record = hri::kHeaderBytes + i * hri::kSectionRecordBytes;
    put_le<std::uint32_t>(out, record, i + 1);
    put_le<std::uint32_t>(out, record + 4, crc32c(std::as_bytes(std::span(sections[i]))));
    put_le<std::uint64_t>(out, record + 8, out.size());
    put_le<std::uint64_t>(out, record + 16, sections[i].size());
    out.append(sections[i]);
  }
  out.replace(0, hri::kMagic.size(), hri::kMagic);
  put_le<std::uint32_t>(out, 8, summary.broken.empty() ? hri::kVersion : hri::kReducedVersion);
  put_le<std::uint32_t>(out, 12, kSections);
  put_le<std::uint64_t>(out, 16, out.size());
  put_le<std::uint64_t>(out, 24, sample_count_);
  put_le<std::uint64_t>(out, 32, stored_bytes_);
  put_le<std::uint32_t>(out, 40, shard_count_);
  put_le<std::uint32_t>(out, 44, static_cast<std::uint32_t>(summary.format));
  put_le<std::uint64_t>(out, 48, object_count_);
  put_le<std::uint64_t>(out, 56, summary.block_bytes);
  put_le<std::uint64_t>(out, 64, fingerprint.low64);
  put_le<std::uint64_t>(out, 72, fingerprint.high64);
  const std::size_t table_end = hri::kHeaderBytes + kSections * hri::kSectionRecordBytes;
  put_le<std::uint32_t>(out, hri::kChecksumOffset,
                        crc32c(std::as_bytes(std::span(out)).first(table_end)));
  return out;
}

}  // namespace headrace::detail
