// The files that a manifest names are the samples, in its order; the other fields of a record are
// columns beside them. Scanning and cutting are those of datasets of JSON lines and CSV, so that a
// record means the same here as there.
//
// A name is a key below the manifest's own folder and never outside of it: a manifest comes from a
// store, and one that could name anything would read anything.
#include "shard/formats/raw/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "shard/dataset/safe_key.h"
#include "shard/formats/csv/csv_layout.h"
#include "shard/formats/csv/csv_scan.h"
#include "shard/formats/text/line_scan.h"
#include "shard/formats/text/row_cutter.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kFileFields[] = {"file_name", "file", "path"};

Status refused(std::string what) { return Status(Code::kInvalidArgument, std::move(what)); }

// How the records are cut: into what is delivered, and into the name of the file alone.
struct Cutters {
  std::string row_layout;
  std::vector<Column> columns;
  RowReader all;
  RowReader file;
};

template <class Layout>
Result<Cutters> make_cutters(const Layout& rest, const Layout& file, std::vector<Column> columns) {
  Cutters out{
      .row_layout = layout_to_json(rest), .columns = std::move(columns), .all = {}, .file = {}};
  HEADRACE_TRY_ASSIGN(out.file, make_row_reader(layout_to_json(file)));
  // Records that hold nothing but the name have no columns to cut.
  if (out.columns.empty()) {
    out.row_layout.clear();
    return out;
  }
  HEADRACE_TRY_ASSIGN(out.all, make_row_reader(out.row_layout));
  return out;
}

template <class HasName>
Result<std::string> find_file_field(HasName has_name) {
  for (const std::string_view name : kFileFields)
    if (has_name(name)) return std::string(name);
  return refused("its records name no file: none has a field file_name, file or path");
}

Result<Cutters> line_cutters(std::string_view facts) {
  HEADRACE_TRY_ASSIGN(const TextFields fields, TextFields::from_text(facts));
  if (!fields.are_objects) return refused("its lines are no JSON objects");
  if (!fields.problem.empty()) return Status(Code::kCorrupt, fields.problem);
  const auto is_text = [&](std::string_view name) {
    const auto at = fields.kinds.find(name);
    return at != fields.kinds.end() && at->second == FieldKind::kString;
  };
  HEADRACE_TRY_ASSIGN(const std::string name, find_file_field(is_text));
  HEADRACE_TRY_ASSIGN(const TextLayout file, make_text_layout(TextKind::kJson, fields, {name}));
  HEADRACE_TRY_ASSIGN(TextLayout rest, make_text_layout(TextKind::kJson, fields, {}));
  std::erase_if(rest.fields, [&](const TextField& field) { return field.name == name; });
  return make_cutters(rest, file, text_columns(rest));
}

Result<Cutters> csv_cutters(std::string_view facts, char delimiter) {
  if (facts.empty()) return refused("it has no header");
  HEADRACE_TRY_ASSIGN(const std::vector<std::string> header, header_from_text(facts));
  const auto is_there = [&](std::string_view name) {
    return std::find(header.begin(), header.end(), name) != header.end();
  };
  HEADRACE_TRY_ASSIGN(const std::string name, find_file_field(is_there));
  HEADRACE_TRY_ASSIGN(const CsvLayout file, make_csv_layout(delimiter, header, {name}));
  HEADRACE_TRY_ASSIGN(CsvLayout rest, make_csv_layout(delimiter, header, {}));
  std::erase(rest.columns, file.columns.front());
  return make_cutters(rest, file, csv_columns(rest));
}

// The key of the file that a record names.
Result<std::string> key_in(std::string_view folder, const ColumnBytes& cell) {
  if (!cell.present) return Status(Code::kCorrupt, "names no file");
  std::string name(cell.size(), '\0');
  cell.write_to(std::as_writable_bytes(std::span(name)));
  while (name.starts_with("./")) name.erase(0, 2);
  if (!is_safe_key(name))
    return Status(Code::kCorrupt,
                  fmt::format("names '{}', which is no file below the manifest's folder", name));
  return std::string(folder) + name;
}

class Parser {
 public:
  Parser(std::string_view key, std::string text)
      : folder_(key.substr(0, key.rfind('/') + 1)),
        delimiter_(csv_delimiter_of(key)),
        is_lines_(key.ends_with(".jsonl") || key.ends_with(".ndjson")) {
    out_.text = std::move(text);
  }

  Result<Manifest> run() {
    if (!delimiter_ && !is_lines_)
      return refused(
          "a manifest is a file of JSON lines (.jsonl, .ndjson) or of separated values "
          "(.csv, .tsv)");
    HEADRACE_TRY_ASSIGN(const FileSamples found, scan());
    if (found.sample_count() == 0) return refused("it has no records");
    HEADRACE_TRY_ASSIGN(Cutters cutters, delimiter_ ? csv_cutters(found.facts, *delimiter_)
                                                    : line_cutters(found.facts));
    HEADRACE_TRY(check_names(cutters.columns));
    for (std::uint64_t i = 0; i < found.sample_count(); ++i) {
      const std::uint64_t begin = found.bounds[i];
      if (Status status = add_row(cutters, begin, found.bounds[i + 1] - begin); !status.ok())
        return std::move(status).annotate(fmt::format("record {}", i));
    }
    out_.columns = std::move(cutters.columns);
    out_.row_layout = std::move(cutters.row_layout);
    return std::move(out_);
  }

 private:
  Result<FileSamples> scan() {
    std::unique_ptr<FileScan> scan;
    if (delimiter_) {
      scan = std::make_unique<CsvScan>(*delimiter_);
    } else {
      scan = std::make_unique<LineScan>(TextKind::kJson, true);
    }
    HEADRACE_TRY(scan->feed(std::as_bytes(std::span(out_.text))));
    HEADRACE_TRY(scan->finish(out_.text.size()));
    return scan->take();
  }

  static Status check_names(const std::vector<Column>& columns) {
    for (const Column& column : columns) {
      if (column.name == "data" || column.name == "key")
        return Status(Code::kUnsupported,
                      fmt::format("it has a field '{}', which is the column of the file's {}",
                                  column.name, column.name == "data" ? "bytes" : "name"));
    }
    return Status();
  }

  // Every record is cut once here: what is broken is refused now, and not in the middle of a run.
  Status add_row(const Cutters& cutters, std::uint64_t begin, std::uint64_t length_bytes) {
    std::string_view row = std::string_view(out_.text).substr(begin, length_bytes);
    const std::size_t last = row.find_last_not_of("\r\n");
    row = row.substr(0, last == std::string_view::npos ? 0 : last + 1);
    const auto bytes = std::as_bytes(std::span(row));
    ColumnBytes file;
    HEADRACE_TRY(cutters.file.cutter->cut(bytes, std::span(&file, 1)));
    if (cutters.all.cutter != nullptr) {
      cells_.resize(cutters.all.column_count);
      HEADRACE_TRY(cutters.all.cutter->cut(bytes, cells_));
    }
    HEADRACE_TRY_ASSIGN(std::string key, key_in(folder_, file));
    out_.rows.push_back({std::move(key), cutters.all.cutter == nullptr ? std::string_view() : row});
    return Status();
  }

  const std::string folder_;
  const std::optional<char> delimiter_;
  const bool is_lines_;
  std::vector<ColumnBytes> cells_;
  Manifest out_;
};

}  // namespace

Result<Manifest> parse_manifest(std::string_view key, std::string text) {
  return Parser(key, std::move(text)).run();
}

}  // namespace headrace::detail
