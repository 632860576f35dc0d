// Makes the index of a table: of Parquet and Arrow files by their footers (TableFiles), of Lance by
// what its package tells of a version.
//
// Invariants:
// - The key of a block's first sample is its record (TableRecord): that is all the dataset knows of
//   where the rows lie. Shards and keys are added in step, `position` being the next free sample.
// - A Lance table is its manifest: that object alone is listed, with its version, so another
//   version is another dataset, although the package reads all other files by itself. Its fragments
//   are cut by rows so that the parts of one differ by one row at most.
// - Partitions are those that every file has: a column that is in some files only would have to be
//   missing in others, and the names of the columns are the same for all samples.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/strings.h"
#include "shard/dataset/listing.h"
#include "shard/dataset/name_parts.h"
#include "shard/formats/table/table_driver.h"
#include "shard/formats/table/table_files.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kLanceVersions = "_versions/";
// Rows of a Lance table are cut in blocks of about this much memory.
constexpr std::uint64_t kLanceBlockBytes = std::uint64_t{4} << 20;

// Schemas are small; what is larger is not looked at.
constexpr std::uint64_t kMostCommonBytes = std::uint64_t{64} << 20;

// Spark and Hive put marks and summaries beside the data; names with a first '_' or '.' are hidden,
// as pyarrow.dataset has it.
bool is_data(const ObjectInfo& object) {
  const std::string_view name = base_name(object.key);
  return !name.empty() && !name.starts_with('_') && !name.starts_with('.') &&
         !name.ends_with(".crc");
}

ShardRecord shard_of(const TablePart& part, std::uint64_t object) {
  ShardRecord shard;
  shard.sample_count = part.row_count;
  shard.stored_bytes = part.stored_bytes;
  shard.raw_bytes = std::max<std::uint64_t>(part.unpacked_bytes, 1);
  shard.first_object = object;
  shard.has_bounds = false;
  shard.compression = Compression::kUnpacked;
  return shard;
}

bool is_integer(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && text == std::to_string(value);
}

// Those that every file has.
std::vector<std::string> common_partitions(const std::vector<ObjectInfo>& objects) {
  std::vector<std::string> names = partition_names(objects.front().key);
  for (const ObjectInfo& object : objects) {
    if (partition_names(object.key) != names) return {};
  }
  return names;
}

// Partitions become columns, unless they are columns of the files.
void append_partitions(const std::vector<ObjectInfo>& objects,
                       const std::vector<std::string>& names, const DatasetOptions& options,
                       TableLayout& layout, std::vector<Column>& columns) {
  for (const std::string& name : names) {
    const bool is_stored = std::any_of(columns.begin(), columns.end(),
                                       [&](const Column& column) { return column.name == name; });
    const auto& wanted = options.columns;
    const bool is_wanted =
        wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
    if (is_stored || !is_wanted) continue;
    bool all_integers = true;
    for (const ObjectInfo& object : objects) {
      std::string value;
      if (partition_value(object.key, name, value))
        all_integers = all_integers && is_integer(value);
    }
    layout.partitions.push_back(name);
    columns.push_back({.name = name, .encoding = "str", .dtype = {}, .shape = {}});
    if (all_integers) {
      columns.back().encoding = columns.back().dtype = "int64";
      columns.back().fixed_size_bytes = 8;
    }
  }
}

Result<std::string> build_files_index(const BuildContext& context,
                                      const std::vector<ObjectInfo>& objects,
                                      const std::string& common) {
  const std::vector<std::string> partitions = common_partitions(objects);
  TableFiles files(context, objects, common, partitions);
  HEADRACE_TRY(files.read_all());
  HEADRACE_TRY(check_table_kind(files.kind(), context.options.kind).annotate(context.store.url()));
  TableLayout layout;
  layout.kind = files.kind();
  layout.where = context.options.row_groups_where;
  layout.heads = files.take_heads();
  std::vector<Column> columns = files.columns();
  append_partitions(objects, partitions, context.options, layout, columns);
  IndexWriter writer;
  std::uint64_t position = 0;
  for (std::size_t f = 0; f < objects.size(); ++f) {
    const ObjectInfo& object = objects[f];
    if (files.is_broken(f)) continue;
    const std::uint64_t number = writer.object_count();
    writer.add_object(object.key, object.etag, object.size_bytes);
    for (const TablePart& part : files.parts(f)) {
      writer.add_shard(shard_of(part, number));
      writer.add_key(position, write_table_record(part.record));
      position += part.row_count;
    }
  }
  return writer.finish({.format = Format::kTable,
                        .columns = std::move(columns),
                        .source = {objects[0].key, objects[0].etag, objects[0].size_bytes},
                        .block_bytes = context.options.block_bytes,
                        .layout = write_table_layout(layout),
                        .broken = context.left_out()});
}

// Schema and key-value metadata of `_common_metadata`, where Petastorm keeps its codecs; empty when
// there is none that can be read: nothing depends on it.
Result<std::string> read_common(const BuildContext& context,
                                const std::vector<ObjectInfo>& objects) {
  for (const ObjectInfo& object : objects) {
    if (object.key != kCommonMetadataKey) continue;
    HEADRACE_TRY_ASSIGN(const std::string file, read_object(context.store, context.pool, object.key,
                                                            kMostCommonBytes, context.call));
    const auto bytes = std::as_bytes(std::span(file));
    const auto footer_bytes = parquet_footer_bytes(bytes, file.size());
    if (!footer_bytes) return std::string();
    auto footer = parse_parquet_footer(bytes.last(*footer_bytes), file.size());
    if (!footer) return std::string();
    return to_hex(compose_parquet_footer(footer->head, footer->key_values, footer->leaves, {}));
  }
  return std::string();
}

// The manifest of a version: named by it, or by 2^64 - 1 - version, which lists newest first.
const ObjectInfo* manifest_of(const std::vector<ObjectInfo>& objects, std::uint64_t version) {
  const std::string plain = fmt::format("{}{}.manifest", kLanceVersions, version);
  const std::string reversed =
      fmt::format("{}{:020}.manifest", kLanceVersions, ~std::uint64_t{0} - version);
  for (const ObjectInfo& object : objects) {
    if (object.key == plain || object.key == reversed) return &object;
  }
  return nullptr;
}

Result<std::string> build_lance_index(const BuildContext& context,
                                      const std::vector<ObjectInfo>& objects) {
  if (!context.options.row_groups_where.empty())
    return Status(Code::kUnsupported, "row_groups_where: not for Lance tables");
  auto table = describe_table(
      {.kind = "lance", .columns = context.options.columns, .url = context.store.url()});
  if (!table) return std::move(table).error().annotate(context.store.url());
  const ObjectInfo* manifest = manifest_of(objects, table->version);
  if (manifest == nullptr) {
    return Status(Code::kChanged,
                  fmt::format("{}: version {} of the Lance table is not among the files listed",
                              context.store.url(), table->version));
  }
  TableLayout layout;
  layout.kind = TableKind::kLance;
  layout.heads.push_back({.bytes = {}, .spec = table->spec, .chosen = {}, .leaves = {}});
  IndexWriter writer;
  writer.add_object(manifest->key, manifest->etag, manifest->size_bytes);
  const std::uint64_t row_bytes = std::max<std::uint64_t>(table->row_bytes, 1);
  const std::uint64_t most_rows = std::clamp<std::uint64_t>(kLanceBlockBytes / row_bytes, 1, 65536);
  std::uint64_t position = 0;
  for (const std::uint64_t rows : table->fragments) {
    const std::uint64_t parts = (rows + most_rows - 1) / most_rows;
    for (std::uint64_t p = 0; p < parts; ++p) {
      TablePart part;
      part.record.first_row = position;
      part.row_count = rows * (p + 1) / parts - rows * p / parts;
      part.unpacked_bytes = part.row_count * row_bytes;
      writer.add_shard(shard_of(part, 0));
      writer.add_key(position, write_table_record(part.record));
      position += part.row_count;
    }
  }
  context.report(1, 1);
  return writer.finish({.format = Format::kTable,
                        .columns = std::move(table->columns),
                        .source = {manifest->key, manifest->etag, manifest->size_bytes},
                        .block_bytes = context.options.block_bytes,
                        .layout = write_table_layout(layout)});
}

}  // namespace

bool is_lance_manifest(const ObjectInfo& object) noexcept {
  return object.key.starts_with(kLanceVersions) && object.key.ends_with(".manifest");
}

Result<std::string> build_table_index(const BuildContext& context,
                                      const std::vector<ObjectInfo>& objects) {
  if (std::any_of(objects.begin(), objects.end(), is_lance_manifest)) {
    HEADRACE_TRY(
        check_table_kind(TableKind::kLance, context.options.kind).annotate(context.store.url()));
    return build_lance_index(context, objects);
  }
  // What lies beside the data as a rule (README.md, dataset_info.json) is none.
  std::vector<ObjectInfo> data = sort_candidates(objects).data;
  if (data.empty()) data = objects;
  std::erase_if(data, [](const ObjectInfo& object) { return !is_data(object); });
  if (data.empty())
    return Status(Code::kNotFound,
                  fmt::format("{}: no Parquet, Arrow or Lance files there", context.store.url()));
  HEADRACE_TRY_ASSIGN(const std::string common, read_common(context, objects));
  return build_files_index(context, data, common);
}

}  // namespace headrace::detail
