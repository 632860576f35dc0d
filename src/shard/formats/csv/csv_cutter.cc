#include "shard/formats/csv/csv_cutter.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "shard/formats/csv/csv_text.h"

namespace headrace::detail {
namespace {

constexpr std::size_t kNoColumn = ~std::size_t{0};

void write_field(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  const CsvField field{{reinterpret_cast<const char*>(cell.bytes.data()), cell.bytes.size()},
                       cell.bytes.size() - out.size()};
  field.write_to({reinterpret_cast<char*>(out.data()), out.size()});
}

ColumnBytes cell_of(const CsvField& field) {
  ColumnBytes cell;
  cell.bytes = std::as_bytes(std::span(field.inner.data(), field.inner.size()));
  cell.present = true;
  if (field.quote_pairs == 0) return cell;
  cell.writer = write_field;
  cell.value_bytes = field.value_bytes();
  return cell;
}

}  // namespace

CsvCutter::CsvCutter(const CsvLayout& layout)
    : delimiter_(layout.delimiter), column_of_(layout.header.size(), kNoColumn) {
  for (std::size_t c = 0; c < layout.columns.size(); ++c) column_of_[layout.columns[c]] = c;
}

Status CsvCutter::cut(std::span<const std::byte> row, std::span<ColumnBytes> out) const {
  std::fill(out.begin(), out.end(), ColumnBytes{});
  const std::string_view record(reinterpret_cast<const char*>(row.data()), row.size());
  CsvText text(trim_csv_record(record), delimiter_);
  CsvField field;
  std::size_t count = 0;
  for (; text.take(field); ++count) {
    if (count >= column_of_.size() || column_of_[count] == kNoColumn) continue;
    if (!simdjson::validate_utf8(field.inner))
      return Status(Code::kCorrupt, fmt::format("csv: field {} is not UTF-8", count + 1));
    out[column_of_[count]] = cell_of(field);
  }
  if (text.is_broken())
    return Status(Code::kCorrupt,
                  fmt::format("csv: the quotes of field {} are not as they should be", count + 1));
  if (count != column_of_.size())
    return Status(Code::kCorrupt,
                  fmt::format("csv: {} fields, the header has {}", count, column_of_.size()));
  return Status();
}

}  // namespace headrace::detail
