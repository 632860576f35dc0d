#include "shard/mds/mds_index.h"

#include <fmt/format.h>

#include "shard/digest.h"
#include "shard/json_reader.h"
#include "shard/mds/mds_encoding.h"

namespace headrace::detail {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::uint64_t kMostShardBytes = 0xffff'ffffULL;  // Offsets in a shard are 32 bits wide.

bool is_safe_basename(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos)
    return false;
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('/'));
    if (part == "..") return false;
    name.remove_prefix(std::min(part.size() + 1, name.size()));
  }
  return true;
}

bool get_string(element from, const char* field, std::string_view& out) {
  return from[field].get_string().get(out) == simdjson::SUCCESS;
}

// One shard entry; `where` starts every message.
class ShardReader {
 public:
  ShardReader(element entry, std::size_t index)
      : entry_(entry), where_(fmt::format("shard {} of index.json", index)) {}

  Status check_kind() const {
    std::uint64_t version = 0;
    if (entry_["version"].get_uint64().get(version)) return corrupt("no version");
    if (version != 2) return unsupported(fmt::format("MDS version {}, only 2 is read", version));
    std::string_view format;
    if (!get_string(entry_, "format", format)) return corrupt("no format");
    if (format != "mds")
      return unsupported(fmt::format("shard format '{}', only 'mds' is read", format));
    return Status();
  }

  Result<std::vector<Column>> columns(bool allow_unsafe) const {
    array names, encodings, sizes;
    if (entry_["column_names"].get_array().get(names) ||
        entry_["column_encodings"].get_array().get(encodings) ||
        entry_["column_sizes"].get_array().get(sizes)) {
      return corrupt("no columns");
    }
    if (names.size() != encodings.size() || names.size() != sizes.size())
      return corrupt("column lists differ in length");
    if (names.size() > kMostColumns)
      return unsupported(fmt::format("more than {} columns", kMostColumns));
    std::vector<Column> columns;
    auto encoding = encodings.begin();
    auto size_entry = sizes.begin();
    for (const element name : names) {
      Column column;
      std::string_view text;
      if (name.get_string().get(text)) return corrupt("bad column name");
      column.name = text;
      if ((*encoding).get_string().get(text)) return corrupt("bad column encoding");
      column.encoding = text;
      const element size = *size_entry;
      ++encoding;
      ++size_entry;
      if (!size.is_null() && (size.get_uint64().get(column.fixed_size_bytes) ||
                              column.fixed_size_bytes > kMostShardBytes)) {
        return corrupt("bad column size");
      }
      if (Status status = describe_mds_column(column, allow_unsafe); !status.ok()) {
        return std::move(status).annotate(where_);
      }
      columns.push_back(std::move(column));
    }
    return columns;
  }

  Result<MdsShard> shard() const {
    MdsShard shard;
    if (entry_["samples"].get_uint64().get(shard.sample_count)) return corrupt("no sample count");
    object raw, zip;
    if (entry_["raw_data"].get_object().get(raw)) return corrupt("no raw_data");
    if (raw["bytes"].get_uint64().get(shard.raw_bytes)) return corrupt("no raw_data.bytes");
    if (shard.raw_bytes > kMostShardBytes)
      return corrupt(fmt::format("{} bytes, a shard has less than 2^32", shard.raw_bytes));
    // The table of offsets alone takes 4 bytes a sample: bounds everything that is allocated by
    // sample count.
    if (shard.raw_bytes < 8 || shard.sample_count > (shard.raw_bytes - 8) / 4) {
      return corrupt(
          fmt::format("{} samples cannot be in {} bytes", shard.sample_count, shard.raw_bytes));
    }
    object stored = raw;
    if (entry_["zip_data"].get_object().get(zip) == simdjson::SUCCESS) {
      std::string_view compression;
      if (!get_string(entry_, "compression", compression))
        return corrupt("zip_data without compression");
      const std::string_view family = compression.substr(0, compression.find(':'));
      if (family != "zstd")
        return unsupported(fmt::format("compression '{}', only zstd is read", family));
      shard.compression = Compression::kZstd;
      stored = zip;
    }
    std::string_view basename;
    if (stored["basename"].get_string().get(basename)) return corrupt("no basename");
    if (!is_safe_basename(basename)) return corrupt("basename outside the dataset");
    shard.basename = basename;
    if (stored["bytes"].get_uint64().get(shard.stored_bytes))
      return corrupt("no size of the stored file");
    if (shard.stored_bytes == 0 || shard.stored_bytes > kMostShardBytes)
      return corrupt("impossible size of the stored file");
    shard.hashes = hashes(stored);
    return shard;
  }

 private:
  static std::string hashes(object stored) {
    std::string list;
    object hashes;
    if (stored["hashes"].get_object().get(hashes)) return list;
    for (const auto [name, value] : hashes) {
      std::string_view hex;
      if (!is_known_digest(name) || value.get_string().get(hex)) continue;
      if (!list.empty()) list += ' ';
      list.append(name).append("=").append(hex);
    }
    return list;
  }
  Status corrupt(std::string_view what) const {
    return Status(Code::kCorrupt, fmt::format("{}: {}", where_, what));
  }
  Status unsupported(std::string_view what) const {
    return Status(Code::kUnsupported, fmt::format("{}: {}", where_, what));
  }
  element entry_;
  std::string where_;
};

bool same_columns(const std::vector<Column>& a, const std::vector<Column>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].encoding != b[i].encoding ||
        a[i].fixed_size_bytes != b[i].fixed_size_bytes) {
      return false;
    }
  }
  return true;
}

}  // namespace

IndexJsonKind kind_of_index_json(std::string_view json) {
  simdjson::dom::parser parser;
  auto root = parse_json(parser, json);
  if (!root) return IndexJsonKind::kOther;
  if ((*root)["shards"].is_array()) return IndexJsonKind::kMds;
  if ((*root)["chunks"].is_array()) return IndexJsonKind::kLitData;
  return IndexJsonKind::kOther;
}

Result<MdsIndex> parse_mds_index(std::string_view json, bool allow_unsafe) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const element root, parse_json(parser, json));
  std::uint64_t version = 0;
  if (root["version"].get_uint64().get(version))
    return Status(Code::kCorrupt, "index.json: no version");
  if (version != 2) {
    return Status(Code::kUnsupported,
                  fmt::format("index.json: MDS version {}, only 2 is read", version));
  }
  array shards;
  if (root["shards"].get_array().get(shards))
    return Status(Code::kCorrupt, "index.json: no list of shards");
  MdsIndex index;
  std::size_t i = 0;
  for (const element entry : shards) {
    const ShardReader reader(entry, i);
    HEADRACE_TRY(reader.check_kind());
    HEADRACE_TRY_ASSIGN(auto columns, reader.columns(allow_unsafe));
    if (i == 0) {
      index.columns = std::move(columns);
    } else if (!same_columns(index.columns, columns)) {
      return Status(Code::kUnsupported,
                    fmt::format("shard {} of index.json has other columns than shard 0", i));
    }
    HEADRACE_TRY_ASSIGN(auto shard, reader.shard());
    index.shards.push_back(std::move(shard));
    ++i;
  }
  return index;
}

}  // namespace headrace::detail
