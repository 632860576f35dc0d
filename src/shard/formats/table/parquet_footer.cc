// Of a footer (parquet.thrift) only what a reader of a block needs is kept; names and statistics,
// which make most of it, are passed over. compose_parquet_footer() then writes a footer of its own
// for some row groups whose offsets point into what was fetched; pyarrow takes it for a file.
//
// - Field ids are the specification's; unknown ones are skipped by type, as newer writers add
//   some.
// - Nothing of a footer becomes a size before it was compared with the file: chunks lie before the
//   footer, counts are at most 2^40, so no sum overflows.
// - The head (version, schema, writer, column orders) is copied as bytes: files of one writer and
//   schema then have equal heads, and the index keeps one for all.
// - Row counts of the groups must sum to the file's: an index that is off by one row would deliver
//   the wrong samples for ever.
#include "shard/formats/table/parquet_footer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/endian.h"
#include "shard/formats/table/thrift.h"

namespace headrace::detail {
namespace {

using Field = ThriftReader::Field;

// No row group has this many values; keeps every sum of sizes inside 64 bits.
constexpr std::int64_t kMostValues = std::int64_t{1} << 40;
constexpr std::uint64_t kMostRowsOfGroup = 0xffff'ffffULL;  // A block's rows have 32 bits.
constexpr std::string_view kMagic = "PAR1";
constexpr std::string_view kEncryptedMagic = "PARE";

enum PhysicalType : std::int32_t {
  kBoolean = 0,
  kInt32 = 1,
  kInt64 = 2,
  kInt96 = 3,
  kFloat = 4,
  kDouble = 5,
  kByteArray = 6,
  kFixedLenByteArray = 7,
};

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("Parquet footer: {}", what));
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> as_bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// SchemaElements in depth-first order; those without children are leaves.
std::optional<std::vector<ParquetLeaf>> parse_schema(ThriftReader& reader) {
  const ThriftReader::List elements = reader.list();
  if (elements.type != ThriftType::kStruct || elements.count == 0) return std::nullopt;
  std::vector<ParquetLeaf> leaves;
  // Children that are still to come: 1 for the root; ends at 0 exactly with the last element.
  std::uint64_t awaited = 1;
  for (std::uint64_t i = 0; i < elements.count; ++i) {
    std::int32_t last = 0;
    Field field;
    ParquetLeaf leaf;
    std::int64_t children = 0;
    while (reader.next_field(last, field)) {
      if (field.type == ThriftType::kI32 && field.id == 1) {
        leaf.physical_type = static_cast<std::int32_t>(reader.integer());
      } else if (field.type == ThriftType::kI32 && field.id == 2) {
        leaf.type_length = static_cast<std::uint32_t>(reader.integer());
      } else if (field.type == ThriftType::kI32 && field.id == 5) {
        children = reader.integer();
      } else {
        reader.skip(field.type);
      }
    }
    if (reader.failed() || children < 0 || awaited == 0 ||
        static_cast<std::uint64_t>(children) > elements.count) {
      return std::nullopt;
    }
    awaited += static_cast<std::uint64_t>(children);
    --awaited;
    if (children == 0 && i > 0) leaves.push_back(leaf);
  }
  if (awaited != 0) return std::nullopt;
  return leaves;
}

// What footers say about one chunk, as it stands there.
struct RawChunk {
  std::int64_t type = -1;
  std::int64_t codec = 0;
  std::int64_t value_count = -1;
  std::int64_t uncompressed_bytes = -1;
  std::int64_t compressed_bytes = -1;
  std::int64_t data_page = -1;
  std::int64_t dictionary_page = 0;
  std::int64_t byte_array_bytes = 0;
  std::size_t extreme_bytes = 0;  // Lengths of minimum and maximum together.
  std::vector<std::uint8_t> encodings;
  bool is_elsewhere = false;
  bool is_encrypted = false;
};

void parse_statistics(ThriftReader& reader, RawChunk& chunk) {
  std::int32_t last = 0;
  Field field;
  while (reader.next_field(last, field)) {
    if (field.type == ThriftType::kBinary && (field.id == 5 || field.id == 6)) {
      chunk.extreme_bytes += reader.binary().size();
    } else {
      reader.skip(field.type);
    }
  }
}

void parse_size_statistics(ThriftReader& reader, RawChunk& chunk) {
  std::int32_t last = 0;
  Field field;
  while (reader.next_field(last, field)) {
    if (field.type == ThriftType::kI64 && field.id == 1) {
      chunk.byte_array_bytes = reader.integer();
    } else {
      reader.skip(field.type);
    }
  }
}

void parse_encodings(ThriftReader& reader, RawChunk& chunk) {
  const ThriftReader::List list = reader.list();
  for (std::uint64_t i = 0; i < list.count && !reader.failed(); ++i) {
    const auto encoding = static_cast<std::uint8_t>(reader.integer());
    const auto found = std::find(chunk.encodings.begin(), chunk.encodings.end(), encoding);
    if (found == chunk.encodings.end()) chunk.encodings.push_back(encoding);
  }
}

void parse_chunk_metadata(ThriftReader& reader, RawChunk& chunk) {
  std::int32_t last = 0;
  Field field;
  while (reader.next_field(last, field)) {
    const bool is_number = field.type == ThriftType::kI32 || field.type == ThriftType::kI64;
    std::int64_t* number = nullptr;
    if (is_number && field.id == 1) number = &chunk.type;
    if (is_number && field.id == 4) number = &chunk.codec;
    if (is_number && field.id == 5) number = &chunk.value_count;
    if (is_number && field.id == 6) number = &chunk.uncompressed_bytes;
    if (is_number && field.id == 7) number = &chunk.compressed_bytes;
    if (is_number && field.id == 9) number = &chunk.data_page;
    if (is_number && field.id == 11) number = &chunk.dictionary_page;
    if (number != nullptr) {
      *number = reader.integer();
    } else if (field.type == ThriftType::kList && field.id == 2) {
      parse_encodings(reader, chunk);
    } else if (field.type == ThriftType::kStruct && field.id == 12) {
      parse_statistics(reader, chunk);
    } else if (field.type == ThriftType::kStruct && field.id == 16) {
      parse_size_statistics(reader, chunk);
    } else {
      reader.skip(field.type);
    }
  }
}

RawChunk parse_chunk(ThriftReader& reader) {
  RawChunk chunk;
  std::int32_t last = 0;
  Field field;
  while (reader.next_field(last, field)) {
    if (field.type == ThriftType::kStruct && field.id == 3) {
      parse_chunk_metadata(reader, chunk);
      continue;
    }
    if (field.type == ThriftType::kBinary && field.id == 1) {
      chunk.is_elsewhere = !reader.binary().empty();
      continue;
    }
    if (field.id == 8 || field.id == 9) chunk.is_encrypted = true;
    reader.skip(field.type);
  }
  return chunk;
}

std::uint64_t unpacked_bytes(const ParquetLeaf& leaf, const RawChunk& raw) {
  const auto count = static_cast<std::uint64_t>(raw.value_count);
  const std::uint64_t validity = count / 8;
  switch (leaf.physical_type) {
    case kBoolean:
      return validity + count / 8;
    case kInt32:
    case kFloat:
      return validity + count * 4;
    case kFixedLenByteArray:
      return validity + count * std::min<std::uint32_t>(leaf.type_length, 1U << 20);
    case kByteArray: {
      const auto page_bytes = static_cast<std::uint64_t>(raw.uncompressed_bytes);
      const auto told = static_cast<std::uint64_t>(
          std::clamp<std::int64_t>(raw.byte_array_bytes, 0, std::int64_t{1} << 50));
      const std::uint64_t typical =
          count * std::min<std::uint64_t>(raw.extreme_bytes / 2, std::uint64_t{1} << 10);
      const std::uint64_t guess = told > 0 ? told : std::max(page_bytes, typical);
      return validity + count * 4 + guess;
    }
    default:
      return validity + count * 8;
  }
}

Result<ParquetChunk> check_chunk(const RawChunk& raw, const ParquetLeaf& leaf,
                                 std::uint64_t data_end) {
  if (raw.is_encrypted) return Status(Code::kUnsupported, "Parquet: encrypted columns");
  if (raw.is_elsewhere)
    return Status(Code::kUnsupported, "Parquet: column chunks that lie in other files");
  if (raw.type != leaf.physical_type)
    return corrupt("a column chunk of another type than its column");
  if (raw.value_count < 0 || raw.value_count > kMostValues || raw.uncompressed_bytes < 0 ||
      raw.uncompressed_bytes > (std::int64_t{1} << 50) || raw.compressed_bytes < 0 ||
      raw.data_page < 0 || raw.dictionary_page < 0 || raw.codec < 0 || raw.codec > 0xff) {
    return corrupt("a column chunk with impossible sizes");
  }
  ParquetChunk chunk;
  // As Arrow reads it: a dictionary offset that does not come first counts for nothing.
  const bool has_dictionary = raw.dictionary_page > 0 && raw.dictionary_page < raw.data_page;
  chunk.begin_bytes =
      static_cast<std::uint64_t>(has_dictionary ? raw.dictionary_page : raw.data_page);
  if (has_dictionary)
    chunk.dictionary_bytes = static_cast<std::uint64_t>(raw.data_page - raw.dictionary_page);
  chunk.length_bytes = static_cast<std::uint64_t>(raw.compressed_bytes);
  if (chunk.begin_bytes > data_end || chunk.length_bytes > data_end - chunk.begin_bytes ||
      chunk.dictionary_bytes > chunk.length_bytes) {
    return corrupt("a column chunk outside the file");
  }
  chunk.uncompressed_bytes = static_cast<std::uint64_t>(raw.uncompressed_bytes);
  chunk.value_count = static_cast<std::uint64_t>(raw.value_count);
  chunk.codec = static_cast<std::uint8_t>(raw.codec);
  chunk.encodings = raw.encodings;
  chunk.unpacked_bytes = unpacked_bytes(leaf, raw);
  return chunk;
}

Result<ParquetRowGroup> parse_row_group(ThriftReader& reader, std::span<const ParquetLeaf> leaves,
                                        std::uint64_t data_end) {
  ParquetRowGroup group;
  std::int64_t row_count = -1;
  std::int32_t last = 0;
  Field field;
  while (reader.next_field(last, field)) {
    if (field.type == ThriftType::kI64 && field.id == 3) {
      row_count = reader.integer();
    } else if (field.type == ThriftType::kList && field.id == 1) {
      const ThriftReader::List chunks = reader.list();
      if (chunks.count != leaves.size() || !group.chunks.empty())
        return corrupt("a row group with another number of columns than the schema");
      group.chunks.reserve(leaves.size());
      for (const ParquetLeaf& leaf : leaves) {
        const RawChunk raw = parse_chunk(reader);
        if (reader.failed()) return corrupt("cut off in a row group");
        HEADRACE_TRY_ASSIGN(ParquetChunk chunk, check_chunk(raw, leaf, data_end));
        group.chunks.push_back(std::move(chunk));
      }
    } else {
      reader.skip(field.type);
    }
  }
  if (reader.failed() || row_count < 0 || group.chunks.size() != leaves.size())
    return corrupt("an incomplete row group");
  group.row_count = static_cast<std::uint64_t>(row_count);
  if (group.row_count > kMostRowsOfGroup)
    return Status(Code::kUnsupported, "Parquet: a row group of 2^32 rows or more");
  return group;
}

// FileMetaData's fields as they stand, and its schema.
struct Sections {
  std::span<const std::byte> version, schema, created_by, column_orders, key_values, groups;
  std::int64_t row_count = -1;
};

std::optional<Sections> split_sections(std::span<const std::byte> metadata) {
  ThriftReader reader(metadata);
  Sections out;
  std::int32_t last = 0;
  Field field;
  while (reader.next_field(last, field)) {
    std::span<const std::byte>* section = nullptr;
    if (field.type == ThriftType::kI32 && field.id == 1) section = &out.version;
    if (field.type == ThriftType::kList && field.id == 2) section = &out.schema;
    if (field.type == ThriftType::kList && field.id == 4) section = &out.groups;
    if (field.type == ThriftType::kList && field.id == 5) section = &out.key_values;
    if (field.type == ThriftType::kBinary && field.id == 6) section = &out.created_by;
    if (field.type == ThriftType::kList && field.id == 7) section = &out.column_orders;
    if (section != nullptr) {
      *section = reader.take(field.type);
    } else if (field.type == ThriftType::kI64 && field.id == 3) {
      out.row_count = reader.integer();
    } else {
      reader.skip(field.type);
    }
  }
  if (reader.failed() || out.schema.empty()) return std::nullopt;
  return out;
}

void write_field(ThriftWriter& writer, std::int32_t id, ThriftType type,
                 std::span<const std::byte> value) {
  if (value.empty()) return;
  writer.field(id, type);
  writer.raw(value);
}

std::string make_head(const Sections& sections) {
  ThriftWriter writer;
  writer.begin_struct();
  write_field(writer, 1, ThriftType::kI32, sections.version);
  write_field(writer, 2, ThriftType::kList, sections.schema);
  write_field(writer, 6, ThriftType::kBinary, sections.created_by);
  write_field(writer, 7, ThriftType::kList, sections.column_orders);
  writer.end_struct();
  return writer.take();
}

void write_chunk(ThriftWriter& writer, const ParquetLeaf& leaf, const ParquetChunk& chunk) {
  writer.begin_struct();
  writer.i64_field(2, 0);
  writer.field(3, ThriftType::kStruct);
  writer.begin_struct();
  writer.i32_field(1, leaf.physical_type);
  writer.field(2, ThriftType::kList);
  writer.list(chunk.encodings.size(), ThriftType::kI32);
  for (const std::uint8_t encoding : chunk.encodings) writer.integer(encoding);
  // Readers know a chunk by its place; the path has to be there, not to say anything.
  writer.field(3, ThriftType::kList);
  writer.list(0, ThriftType::kBinary);
  writer.i32_field(4, chunk.codec);
  writer.i64_field(5, static_cast<std::int64_t>(chunk.value_count));
  writer.i64_field(6, static_cast<std::int64_t>(chunk.uncompressed_bytes));
  writer.i64_field(7, static_cast<std::int64_t>(chunk.length_bytes));
  writer.i64_field(9, static_cast<std::int64_t>(chunk.begin_bytes + chunk.dictionary_bytes));
  if (chunk.dictionary_bytes > 0)
    writer.i64_field(11, static_cast<std::int64_t>(chunk.begin_bytes));
  writer.end_struct();
  writer.end_struct();
}

void write_row_group(ThriftWriter& writer, std::span<const ParquetLeaf> leaves,
                     const ParquetRowGroup& group) {
  std::uint64_t total = 0;
  writer.begin_struct();
  writer.field(1, ThriftType::kList);
  writer.list(leaves.size(), ThriftType::kStruct);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    write_chunk(writer, leaves[i], group.chunks[i]);
    total += group.chunks[i].uncompressed_bytes;
  }
  writer.i64_field(2, static_cast<std::int64_t>(total));
  writer.i64_field(3, static_cast<std::int64_t>(group.row_count));
  writer.end_struct();
}

}  // namespace

Result<std::uint64_t> parquet_footer_bytes(std::span<const std::byte> tail,
                                           std::uint64_t file_bytes) {
  if (tail.size() < kParquetTailBytes || file_bytes < kMagic.size() + kParquetTailBytes)
    return corrupt("the file is too short");
  tail = tail.last(kParquetTailBytes);
  const std::string_view magic = as_text(tail.subspan(4));
  if (magic == kEncryptedMagic) return Status(Code::kUnsupported, "Parquet: an encrypted footer");
  if (magic != kMagic) return corrupt("does not end with PAR1 (truncated?)");
  const std::uint64_t length = load_le<std::uint32_t>(tail.data());
  if (length == 0 || length > file_bytes - kMagic.size() - kParquetTailBytes)
    return corrupt(fmt::format("a footer of {} bytes in a file of {}", length, file_bytes));
  return length + kParquetTailBytes;
}

Result<ParquetFooter> parse_parquet_footer(std::span<const std::byte> footer,
                                           std::uint64_t file_bytes) {
  HEADRACE_TRY_ASSIGN(const std::uint64_t footer_bytes, parquet_footer_bytes(footer, file_bytes));
  if (footer.size() != footer_bytes) return corrupt("cut off");
  const auto sections = split_sections(footer.first(footer_bytes - kParquetTailBytes));
  if (!sections) return corrupt("not a FileMetaData");
  ThriftReader schema(sections->schema);
  auto leaves = parse_schema(schema);
  if (!leaves) return corrupt("a broken schema");
  ParquetFooter out;
  out.head = make_head(*sections);
  out.key_values = as_text(sections->key_values);
  out.leaves = *std::move(leaves);
  ThriftReader groups(sections->groups);
  const ThriftReader::List list = sections->groups.empty() ? ThriftReader::List{} : groups.list();
  if (list.count > 0 && list.type != ThriftType::kStruct) return corrupt("broken row groups");
  for (std::uint64_t i = 0; i < list.count; ++i) {
    HEADRACE_TRY_ASSIGN(ParquetRowGroup group,
                        parse_row_group(groups, out.leaves, file_bytes - footer_bytes));
    out.row_count += group.row_count;
    out.row_groups.push_back(std::move(group));
  }
  if (sections->row_count < 0 || out.row_count != static_cast<std::uint64_t>(sections->row_count))
    return corrupt("row groups and the file differ in rows");
  return out;
}

std::string described_key_values(std::string_view key_values) {
  ThriftReader reader(as_bytes_of(key_values));
  const ThriftReader::List list = key_values.empty() ? ThriftReader::List{} : reader.list();
  std::string out;
  for (std::uint64_t i = 0; i < list.count && !reader.failed(); ++i) {
    const std::size_t begin = reader.position();
    std::string_view key;
    std::int32_t last = 0;
    Field field;
    while (reader.next_field(last, field)) {
      if (field.type == ThriftType::kBinary && field.id == 1) {
        key = reader.text();
      } else {
        reader.skip(field.type);
      }
    }
    if (key == "ARROW:schema" || key == "dataset-toolkit.unischema.v1")
      out += key_values.substr(begin, reader.position() - begin);
  }
  return out;
}

Result<std::vector<ParquetLeaf>> parquet_leaves(std::string_view head) {
  const auto sections = split_sections(as_bytes_of(head));
  if (!sections) return corrupt("a broken head");
  ThriftReader schema(sections->schema);
  auto leaves = parse_schema(schema);
  if (!leaves) return corrupt("a broken schema");
  return *std::move(leaves);
}

std::string compose_parquet_footer(std::string_view head, std::string_view key_values,
                                   std::span<const ParquetLeaf> leaves,
                                   std::span<const ParquetRowGroup> groups) {
  const Sections sections = split_sections(as_bytes_of(head)).value_or(Sections{});
  std::uint64_t row_count = 0;
  for (const ParquetRowGroup& group : groups) row_count += group.row_count;
  ThriftWriter writer;
  writer.begin_struct();
  write_field(writer, 1, ThriftType::kI32, sections.version);
  write_field(writer, 2, ThriftType::kList, sections.schema);
  writer.i64_field(3, static_cast<std::int64_t>(row_count));
  writer.field(4, ThriftType::kList);
  writer.list(groups.size(), ThriftType::kStruct);
  for (const ParquetRowGroup& group : groups) write_row_group(writer, leaves, group);
  write_field(writer, 5, ThriftType::kList, as_bytes_of(key_values));
  write_field(writer, 6, ThriftType::kBinary, sections.created_by);
  write_field(writer, 7, ThriftType::kList, sections.column_orders);
  writer.end_struct();
  const std::string metadata = writer.take();
  std::byte length[4];
  store_le<std::uint32_t>(length, static_cast<std::uint32_t>(metadata.size()));
  return fmt::format("{}{}{}{}", kMagic, metadata, as_text(length), kMagic);
}

}  // namespace headrace::detail
