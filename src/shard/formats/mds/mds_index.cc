// index.json may be long. It is cut into its entries as it comes, by a scan that knows strings,
// escapes and nesting only, and simdjson judges each entry: so memory holds the shards found and
// one entry, not the text.
//
// Nothing is taken on trust: sizes are below 2^32, as offsets in a shard are; a number of samples
// must fit the bytes of its table before it is used as a size; names must stay inside of the
// dataset.
#include "shard/formats/mds/mds_index.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "shard/codec/digest.h"
#include "shard/codec/json_reader.h"
#include "shard/codec/json_text.h"
#include "shard/dataset/safe_key.h"
#include "shard/formats/mds/mds_encoding.h"

namespace headrace::detail {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::uint64_t kMostShardBytes = 0xffff'ffffULL;  // Offsets in a shard are 32 bits wide.

bool get_string(element from, const char* field, std::string_view& out) {
  return from[field].get_string().get(out) == simdjson::SUCCESS;
}

struct Family {
  std::string_view name;
  Compression compression;
};
constexpr Family kFamilies[] = {{"zstd", Compression::kZstd},
                                {"gz", Compression::kGzip},
                                {"bz2", Compression::kBzip2},
                                {"br", Compression::kBrotli},
                                {"snappy", Compression::kSnappy}};

// Values of split shards are texts; MDS has names for those.
std::string_view text_encoding(std::string_view encoding) {
  if (encoding == "int") return "str_int";
  if (encoding == "float") return "str_float";
  return encoding == "str" ? "str" : "";
}

// One shard entry; `where` starts every message.
class ShardReader {
 public:
  ShardReader(element entry, std::size_t index)
      : entry_(entry), where_(fmt::format("shard {} of index.json", index)) {}

  Result<MdsSplit> split() const {
    std::uint64_t version = 0;
    if (entry_["version"].get_uint64().get(version)) return corrupt("no version");
    if (version != 2) return unsupported(fmt::format("MDS version {}, only 2 is read", version));
    std::string_view format, text;
    if (!get_string(entry_, "format", format)) return corrupt("no format");
    MdsSplit split;
    if (format == "mds") return split;
    if (format == "json") {
      split.kind = MdsSplit::Kind::kJson;
    } else if (format == "csv" || format == "tsv" || format == "xsv") {
      split.kind = MdsSplit::Kind::kXsv;
      split.separator = format == "csv" ? "," : "\t";
      if (format == "xsv") {
        if (!get_string(entry_, "separator", text) || text.empty()) return corrupt("no separator");
        split.separator = text;
      }
    } else {
      return unsupported(
          fmt::format("shard format '{}', only mds, json, csv, tsv and xsv are read", format));
    }
    if (!get_string(entry_, "newline", text) || text.empty()) return corrupt("no newline");
    split.newline = text;
    return split;
  }

  Result<std::vector<Column>> columns(const MdsSplit& split, bool allow_unsafe) const {
    if (split.kind == MdsSplit::Kind::kJson) return json_columns();
    array names, encodings, sizes;
    const bool has_sizes = split.kind == MdsSplit::Kind::kNone;
    if (entry_["column_names"].get_array().get(names) ||
        entry_["column_encodings"].get_array().get(encodings) ||
        (has_sizes && entry_["column_sizes"].get_array().get(sizes))) {
      return corrupt("no columns");
    }
    if (names.size() != encodings.size() || (has_sizes && names.size() != sizes.size()))
      return corrupt("column lists differ in length");
    if (names.size() > kMostColumns)
      return unsupported(fmt::format("more than {} columns", kMostColumns));
    std::vector<Column> columns;
    auto encoding = encodings.begin();
    auto size = (has_sizes ? sizes : encodings).begin();  // Of the others not looked at.
    for (const element name : names) {
      std::string_view name_text, encoding_text;
      if (name.get_string().get(name_text)) return corrupt("bad column name");
      if ((*encoding).get_string().get(encoding_text)) return corrupt("bad column encoding");
      ++encoding;
      Column column{.name = std::string(name_text), .encoding = {}, .dtype = {}, .shape = {}};
      if (has_sizes) {
        column.encoding = encoding_text;
        HEADRACE_TRY(describe(column, *size, allow_unsafe));
        ++size;
      } else {
        HEADRACE_TRY(describe_text(column, encoding_text));
      }
      columns.push_back(std::move(column));
    }
    return columns;
  }

  Result<MdsShard> shard(const MdsSplit& split) const {
    MdsShard shard;
    if (entry_["samples"].get_uint64().get(shard.sample_count)) return corrupt("no sample count");
    object zip;
    const bool is_zipped = entry_["zip_data"].get_object().get(zip) == simdjson::SUCCESS;
    if (is_zipped) HEADRACE_TRY(take_compression(shard.compression));
    object stored;
    HEADRACE_TRY(
        take_file("_data", is_zipped, stored, shard.basename, shard.stored_bytes, shard.raw_bytes));
    shard.hashes = hashes(stored);
    std::uint64_t table_bytes = shard.raw_bytes;
    if (split.kind != MdsSplit::Kind::kNone) {
      HEADRACE_TRY(take_file("_meta", is_zipped, stored, shard.meta.basename,
                             shard.meta.stored_bytes, shard.meta.raw_bytes));
      shard.meta.hashes = hashes(stored);
      table_bytes = shard.meta.raw_bytes;
    }
    // The table of offsets alone takes 4 bytes a sample: bounds everything that is allocated by
    // sample count.
    if (table_bytes < 8 || shard.sample_count > (table_bytes - 8) / 4) {
      return corrupt(
          fmt::format("{} samples cannot be in {} bytes", shard.sample_count, table_bytes));
    }
    return shard;
  }

 private:
  Status describe(Column& column, element size, bool allow_unsafe) const {
    if (!size.is_null() && (size.get_uint64().get(column.fixed_size_bytes) ||
                            column.fixed_size_bytes > kMostShardBytes)) {
      return corrupt("bad column size");
    }
    Status status = describe_mds_column(column, allow_unsafe);
    return status.ok() ? Status() : std::move(status).annotate(where_);
  }

  Status describe_text(Column& column, std::string_view encoding) const {
    column.encoding = text_encoding(encoding);
    if (!column.encoding.empty()) return Status();
    return unsupported(
        fmt::format("column '{}': encoding '{}' in lines of text, only int, float "
                    "and str are read",
                    column.name, encoding));
  }

  Result<std::vector<Column>> json_columns() const {
    object fields;
    if (entry_["columns"].get_object().get(fields)) return corrupt("no columns");
    std::vector<Column> columns;
    for (const auto [name, encoding] : fields) {
      if (columns.size() >= kMostColumns)
        return unsupported(fmt::format("more than {} columns", kMostColumns));
      std::string_view text;
      if (encoding.get_string().get(text)) return corrupt("bad column encoding");
      Column column{.name = std::string(name), .encoding = {}, .dtype = {}, .shape = {}};
      HEADRACE_TRY(describe_text(column, text));
      columns.push_back(std::move(column));
    }
    return columns;
  }

  Status take_compression(Compression& compression) const {
    std::string_view text;
    if (!get_string(entry_, "compression", text)) return corrupt("zip_data without compression");
    const std::string_view family = text.substr(0, text.find(':'));
    for (const Family& known : kFamilies) {
      if (known.name != family) continue;
      compression = known.compression;
      return Status();
    }
    return unsupported(
        fmt::format("compression '{}', only zstd, gz, bz2, br and snappy are read", family));
  }

  // The file "raw" + what, stored as "zip" + what when `is_zipped`.
  Status take_file(std::string_view what, bool is_zipped, object& stored, std::string& basename,
                   std::uint64_t& stored_bytes, std::uint64_t& raw_bytes) const {
    object raw;
    if (entry_["raw" + std::string(what)].get_object().get(raw))
      return corrupt(fmt::format("no raw{}", what));
    if (raw["bytes"].get_uint64().get(raw_bytes))
      return corrupt(fmt::format("no raw{}.bytes", what));
    if (raw_bytes > kMostShardBytes)
      return corrupt(fmt::format("{} bytes, a shard has less than 2^32", raw_bytes));
    stored = raw;
    if (is_zipped && entry_["zip" + std::string(what)].get_object().get(stored))
      return corrupt(fmt::format("no zip{}", what));
    std::string_view text;
    if (stored["basename"].get_string().get(text)) return corrupt("no basename");
    if (!is_safe_key(text)) return corrupt("basename outside the dataset");
    basename = text;
    if (stored["bytes"].get_uint64().get(stored_bytes))
      return corrupt("no size of the stored file");
    if (stored_bytes == 0 || stored_bytes > kMostShardBytes)
      return corrupt("impossible size of the stored file");
    return Status();
  }

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

std::string layout_of(const MdsSplit& split) {
  if (split.kind == MdsSplit::Kind::kNone) return {};
  const bool is_json = split.kind == MdsSplit::Kind::kJson;
  const nlohmann::json json = {{"split", is_json ? "json" : "xsv"},
                               {"separator", split.separator},
                               {"newline", split.newline}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<MdsSplit> parse_mds_layout(std::string_view layout) {
  MdsSplit split;
  if (layout.empty()) return split;
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const element root, parse_json(parser, layout));
  std::string_view kind, separator, newline;
  if (!get_string(root, "split", kind) || !get_string(root, "separator", separator) ||
      !get_string(root, "newline", newline) || newline.empty() ||
      (kind != "json" && (kind != "xsv" || separator.empty()))) {
    return Status(Code::kCorrupt, "dataset index: impossible layout of split MDS shards");
  }
  split.kind = kind == "json" ? MdsSplit::Kind::kJson : MdsSplit::Kind::kXsv;
  split.separator = separator;
  split.newline = newline;
  return split;
}

// Cuts the text in the entries of the top-level list "shards" and the rest, knowing of JSON only
// strings, escapes and nesting; simdjson then judges the parts.
class MdsIndexStream::Impl {
 public:
  explicit Impl(bool allow_unsafe) : allow_unsafe_(allow_unsafe) {}

  Status feed(std::string_view piece) {
    for (std::size_t at = 0; at < piece.size();) {
      if (is_in_string_) {
        at += take_string_part(piece.substr(at));
      } else {
        HEADRACE_TRY(take(piece[at++]));
      }
      if (part().size() > kMostEntryBytes) {
        return Status(
            Code::kUnsupported,
            fmt::format("index.json: shard {} (or what is beside the shards) has more than "
                        "{} bytes",
                        index_.shards.size(), kMostEntryBytes));
      }
    }
    return Status();
  }

  Result<MdsIndex> finish() {
    HEADRACE_TRY_ASSIGN(const element root, parse_json(parser_, rest_));
    std::uint64_t version = 0;
    if (root["version"].get_uint64().get(version))
      return Status(Code::kCorrupt, "index.json: no version");
    if (version != 2) {
      return Status(Code::kUnsupported,
                    fmt::format("index.json: MDS version {}, only 2 is read", version));
    }
    array shards;
    if (!has_shards_ || root["shards"].get_array().get(shards))
      return Status(Code::kCorrupt, "index.json: no list of shards");
    HEADRACE_TRY(refuse_repeated_files());
    return std::move(index_);
  }

 private:
  std::string& part() { return is_in_shards_ ? entry_ : rest_; }

  // Up to and with the closing quote, or all of it.
  std::size_t take_string_part(std::string_view piece) {
    std::size_t end = 0;
    while (end < piece.size()) {
      const char c = piece[end++];
      if (is_escaped_) {
        is_escaped_ = false;
      } else if (c == '\\') {
        is_escaped_ = true;
      } else if (c == '"') {
        is_in_string_ = false;
        break;
      }
    }
    part().append(piece.substr(0, end));
    return end;
  }

  Status take(char c) {
    switch (c) {
      case '"':
        is_in_string_ = true;
        // The last string at depth 1 before a bracket is the key of what it opens.
        if (depth_ == 1 && !is_in_shards_) key_begin_ = rest_.size();
        break;
      case '{':
      case '[':
        if (++depth_ > kJsonDepth) return Status(Code::kCorrupt, "index.json: nested too deep");
        // The list opens: from here to its end text goes to entries, the rest stays for the checks
        // at the end.
        if (c == '[' && depth_ == 2 && is_key_of_shards()) {
          if (has_shards_) return Status(Code::kCorrupt, "index.json: two lists of shards");
          rest_ += c;
          is_in_shards_ = has_shards_ = true;
          return Status();
        }
        break;
      case '}':
      case ']':
        if (depth_ == 0) return Status(Code::kCorrupt, "index.json: not JSON");
        --depth_;
        if (is_in_shards_ && depth_ == 1) {
          HEADRACE_TRY(finish_entry(true));
          is_in_shards_ = false;
        }
        break;
      case ',':
        if (is_in_shards_ && depth_ == 2) return finish_entry(false);
        break;
      case ' ':
      case '\n':
      case '\t':
      case '\r':
        return Status();
      default:
        break;
    }
    part() += c;
    return Status();
  }

  // Mosaic's writers never name a file twice: an entry was copied, or its name is damaged.
  Status refuse_repeated_files() const {
    std::unordered_map<std::string_view, std::size_t> owners;
    owners.reserve(index_.shards.size());
    for (std::size_t i = 0; i < index_.shards.size(); ++i) {
      for (const std::string& name :
           {std::cref(index_.shards[i].basename), std::cref(index_.shards[i].meta.basename)}) {
        if (name.empty()) continue;
        const auto [found, is_new] = owners.emplace(name, i);
        if (is_new) continue;
        return Status(Code::kCorrupt,
                      fmt::format("index.json: shard {} and shard {} are both in the file {}",
                                  found->second, i, name));
      }
    }
    return Status();
  }

  bool is_key_of_shards() const {
    return std::string_view(rest_).substr(std::min(key_begin_, rest_.size())) == "\"shards\":";
  }

  Status finish_entry(bool is_last) {
    if (is_last && entry_.empty() && index_.shards.empty()) return Status();
    const std::size_t i = index_.shards.size();
    auto parsed = parse_json(parser_, entry_);
    if (!parsed)
      return std::move(parsed).error().annotate(fmt::format("shard {} of index.json", i));
    const ShardReader reader(*parsed, i);
    HEADRACE_TRY_ASSIGN(auto split, reader.split());
    HEADRACE_TRY_ASSIGN(auto columns, reader.columns(split, allow_unsafe_));
    if (i == 0) {
      index_.columns = std::move(columns);
      index_.split = std::move(split);
    } else if (!same_columns(index_.columns, columns) || split != index_.split) {
      return Status(Code::kUnsupported,
                    fmt::format("shard {} of index.json has other columns than shard 0", i));
    }
    HEADRACE_TRY_ASSIGN(auto shard, reader.shard(index_.split));
    index_.shards.push_back(std::move(shard));
    entry_.clear();
    return Status();
  }

  const bool allow_unsafe_;
  simdjson::dom::parser parser_;
  MdsIndex index_;
  std::string rest_;   // The text without blanks and entries.
  std::string entry_;  // Of the list of shards, as far as it came.
  std::size_t depth_ = 0;
  std::size_t key_begin_ = 0;
  bool is_in_string_ = false;
  bool is_escaped_ = false;
  bool is_in_shards_ = false;
  bool has_shards_ = false;
};

MdsIndexStream::MdsIndexStream(bool allow_unsafe) : impl_(std::make_unique<Impl>(allow_unsafe)) {}
MdsIndexStream::~MdsIndexStream() = default;
Status MdsIndexStream::feed(std::string_view piece) { return impl_->feed(piece); }
Result<MdsIndex> MdsIndexStream::finish() { return impl_->finish(); }

Result<MdsIndex> parse_mds_index(std::string_view json, bool allow_unsafe) {
  MdsIndexStream stream(allow_unsafe);
  HEADRACE_TRY(stream.feed(json));
  return stream.finish();
}

}  // namespace headrace::detail
