#include "shard/formats/csv/csv_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shard/codec/json_reader.h"
#include "shard/formats/csv/csv_text.h"

namespace headrace::detail {
namespace {

// nlohmann-json writes the keys of an object sorted.
constexpr std::string_view kLayoutBegin = "{\"columns\":";

Status broken() { return Status(Code::kCorrupt, "csv: the index has a broken layout"); }

}  // namespace

std::optional<char> csv_delimiter_of(std::string_view key) noexcept {
  for (const std::string_view coding : {".gz", ".zst", ".zstd", ".bz2", ".xz"}) {
    if (!key.ends_with(coding)) continue;
    key.remove_suffix(coding.size());
    break;
  }
  if (key.ends_with(".csv")) return ',';
  if (key.ends_with(".tsv") || key.ends_with(".tab")) return '\t';
  return std::nullopt;
}

Result<std::vector<std::string>> parse_csv_header(std::string_view record, char delimiter) {
  std::vector<std::string> header;
  CsvText text(trim_csv_record(record), delimiter);
  CsvField field;
  while (text.take(field)) {
    std::string name(field.value_bytes(), '\0');
    field.write_to(name);
    if (!simdjson::validate_utf8(name))
      return Status(Code::kUnsupported, "csv: the header is not UTF-8");
    if (name.empty()) name = fmt::format("unnamed_{}", header.size());
    if (std::find(header.begin(), header.end(), name) != header.end())
      return Status(Code::kUnsupported, fmt::format("csv: the header has '{}' twice", name));
    header.push_back(std::move(name));
    if (header.size() > kMostCsvFields)
      return Status(Code::kUnsupported,
                    fmt::format("csv: the header has more than {} fields", kMostCsvFields));
  }
  return header;
}

Result<CsvLayout> make_csv_layout(char delimiter, std::vector<std::string> header,
                                  const std::vector<std::string>& chosen) {
  CsvLayout layout{.delimiter = delimiter, .header = std::move(header), .columns = {}};
  const std::vector<std::string>& names = chosen.empty() ? layout.header : chosen;
  for (const std::string& name : names) {
    const auto found = std::find(layout.header.begin(), layout.header.end(), name);
    if (found == layout.header.end()) {
      return Status(Code::kInvalidArgument, fmt::format("no column '{}'; there are: {}", name,
                                                        fmt::join(layout.header, ", ")));
    }
    const auto position = static_cast<std::uint32_t>(found - layout.header.begin());
    if (std::find(layout.columns.begin(), layout.columns.end(), position) != layout.columns.end())
      return Status(Code::kInvalidArgument, fmt::format("column '{}' is chosen twice", name));
    layout.columns.push_back(position);
  }
  return layout;
}

std::vector<Column> csv_columns(const CsvLayout& layout) {
  std::vector<Column> columns;
  for (const std::uint32_t position : layout.columns) {
    columns.emplace_back().name = layout.header[position];
    columns.back().encoding = "str";
  }
  return columns;
}

std::string layout_to_json(const CsvLayout& layout) {
  return nlohmann::json{{"columns", layout.columns},
                        {"delimiter", std::string(1, layout.delimiter)},
                        {"header", layout.header}}
      .dump();
}

bool is_csv_layout(std::string_view json) noexcept { return json.starts_with(kLayoutBegin); }

Result<CsvLayout> parse_csv_layout(std::string_view json) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const simdjson::dom::element root, parse_json(parser, json));
  CsvLayout layout;
  std::string_view delimiter;
  simdjson::dom::array columns;
  simdjson::dom::element header;
  if (root["delimiter"].get_string().get(delimiter) || delimiter.size() != 1 ||
      root["header"].get(header) || !read_strings(header, layout.header) ||
      root["columns"].get_array().get(columns)) {
    return broken();
  }
  layout.delimiter = delimiter.front();
  for (const simdjson::dom::element entry : columns) {
    std::uint64_t position = 0;
    if (entry.get_uint64().get(position) || position >= layout.header.size()) return broken();
    layout.columns.push_back(static_cast<std::uint32_t>(position));
  }
  return layout;
}

std::string header_to_text(const std::vector<std::string>& header) {
  return nlohmann::json(header).dump();
}

Result<std::vector<std::string>> header_from_text(std::string_view text) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const simdjson::dom::element root, parse_json(parser, text));
  std::vector<std::string> header;
  if (!read_strings(root, header)) return Status(Code::kCorrupt, "csv: not the header of a file");
  return header;
}

}  // namespace headrace::detail
