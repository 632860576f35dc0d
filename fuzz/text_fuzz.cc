// Any bytes as lines of text or of JSON, or as separated values: the scan ends, the records are the
// file, and what is cut can be written.
#include <vector>

#include "require.h"
#include "shard/formats/csv/csv_cutter.h"
#include "shard/formats/csv/csv_scan.h"
#include "shard/formats/text/array_scan.h"
#include "shard/formats/text/line_cutter.h"
#include "shard/formats/text/line_scan.h"
#include "shard/formats/text/text_driver.h"
#include "shard/testing/drive_scan.h"

namespace {

using headrace::ColumnBytes;
namespace detail = headrace::detail;

void write_all(const std::vector<ColumnBytes>& cells, std::size_t most_bytes) {
  for (const ColumnBytes& cell : cells) {
    if (!cell.present) continue;
    require(cell.size() <= most_bytes + 8);
    std::vector<std::byte> out(cell.size());
    cell.write_to(out);
  }
}

void read_lines(std::span<const std::byte> file, detail::TextKind kind, std::uint64_t piece_bytes) {
  detail::LineScan scan(kind, true);
  require(headrace::testing::drive_scan(scan, file, piece_bytes).ok());
  const detail::FileSamples samples = scan.take();
  auto fields = detail::TextFields::from_text(samples.facts);
  require(fields.has_value());
  auto layout = detail::make_text_layout(kind, *fields, {});
  require(layout.has_value());
  auto again = detail::parse_text_layout(detail::layout_to_json(*layout));
  require(again.has_value() && again->fields.size() == layout->fields.size());
  const detail::LineCutter cutter(*layout);
  const bool is_right = fields->problem.empty();
  std::vector<ColumnBytes> cells(detail::text_columns(*layout).size());
  for (std::uint64_t i = 0; i < samples.sample_count(); ++i) {
    const std::uint64_t begin = samples.bounds[i];
    const std::uint64_t end = samples.bounds[i + 1];
    require(begin < end && end <= file.size());
    const bool is_cut = cutter.cut(file.subspan(begin, end - begin), cells).ok();
    // What the schema was made of fits it.
    require(is_cut || !is_right || i >= detail::kLookedAtLines ||
            end - begin > detail::kMostLookedAtBytes);
    if (is_cut) write_all(cells, end - begin);
  }
}

void read_array(std::span<const std::byte> file, std::uint64_t piece_bytes) {
  detail::ArrayScan scan(true);
  if (!headrace::testing::drive_scan(scan, file, piece_bytes).ok()) return;
  const detail::FileSamples samples = scan.take();
  std::uint64_t at = 0;
  for (const std::uint64_t bound : samples.bounds) {
    require(bound >= at && bound <= file.size());
    at = bound;
  }
  require(detail::TextFields::from_text(samples.facts).has_value());
}

void read_values(std::span<const std::byte> file, std::uint64_t piece_bytes) {
  detail::CsvScan scan(',');
  if (!headrace::testing::drive_scan(scan, file, piece_bytes).ok()) return;
  const detail::FileSamples samples = scan.take();
  if (samples.facts.empty()) return;
  auto header = detail::header_from_text(samples.facts);
  require(header.has_value());
  auto layout = detail::make_csv_layout(',', *header, {});
  require(layout.has_value());
  auto again = detail::parse_csv_layout(detail::layout_to_json(*layout));
  require(again.has_value() && again->columns == layout->columns);
  const detail::CsvCutter cutter(*layout);
  std::vector<ColumnBytes> cells(layout->columns.size());
  for (std::uint64_t i = 0; i < samples.sample_count(); ++i) {
    const std::uint64_t begin = samples.bounds[i];
    const std::uint64_t end = samples.bounds[i + 1];
    require(begin < end && end <= file.size());
    // What the scan let pass can only break for not being UTF-8.
    const headrace::Status status = cutter.cut(file.subspan(begin, end - begin), cells);
    require(status.ok() || status.message().find("UTF-8") != std::string_view::npos);
    if (status.ok()) write_all(cells, end - begin);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  (void)detail::looks_like_json_lines(bytes);
  read_lines(bytes, data[0] % 2 == 0 ? detail::TextKind::kJson : detail::TextKind::kText,
             1 + data[0] / 2);
  (void)detail::looks_like_json_array(bytes);
  read_array(bytes, 1 + data[0] / 2);
  read_values(bytes, 1 + data[0] / 2);
  return 0;
}
